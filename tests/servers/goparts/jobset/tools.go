//go:build tools

// The JobSet controller, built as it is. A module of its own: it is written against an older Kubernetes client
// than the control plane's, and does not compile with a newer one.
package main

import _ "sigs.k8s.io/jobset"
