"""What people type and read: policy files, settings, commands, sentences, the live view."""
