//go:build tools

// promtool, built as it is from the version in go.mod.
package main

import _ "github.com/prometheus/prometheus/cmd/promtool"
