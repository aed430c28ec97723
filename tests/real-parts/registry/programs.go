//go:build programs

// Package programs names what is built from this module; see ../README.md.
package programs

import (
	_ "github.com/distribution/distribution/v3/cmd/registry"
)
