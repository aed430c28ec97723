//go:build programs

// Package programs names what is built from this module; see ../README.md.
package programs

import (
	_ "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
)
