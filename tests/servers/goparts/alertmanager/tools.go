//go:build tools

// Alertmanager, built as it is from the version in go.mod: the newest whose module has its UI files in it.
package main

import _ "github.com/prometheus/alertmanager/cmd/alertmanager"
