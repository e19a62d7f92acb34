"""Tests of the streams room: with fakes, on the embedded broker, and on the real one."""
