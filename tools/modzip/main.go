// Command modzip writes the module zip file of the folder DIR to standard output, without nested
// modules.
//
//	go run ./modzip DIR VERSION
package main

import (
	"bufio"
	"fmt"
	"os"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "modzip:", err)
		os.Exit(1)
	}
}

func write(dir, version string) error {
	mod, err := os.ReadFile(dir + "/go.mod")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	if err := zip.CreateFromDir(out, module.Version{Path: modfile.ModulePath(mod), Version: version}, dir); err != nil {
		return err
	}
	return out.Flush()
}
