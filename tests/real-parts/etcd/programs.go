//go:build programs

// Package programs names what is built from this module; see ../README.md.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
)
