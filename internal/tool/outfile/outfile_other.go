//go:build !linux

package outfile

import (
	"errors"
	"os"
)

func openUnnamed(string, os.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }
func linkUnnamed(*os.File, string) error                { return errors.ErrUnsupported }
