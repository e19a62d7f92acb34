//go:build tools

// Programs that are built as they are from the versions in go.mod; kept here so that `go mod tidy` keeps them.
package main

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
