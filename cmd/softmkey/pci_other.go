//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
)

func (f *pciFlags) run(context.Context, io.Writer) error {
	return errors.New("pci: serving virtual machines needs Linux")
}
