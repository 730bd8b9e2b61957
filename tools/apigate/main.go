// Command apigate compares the public packages of two checkouts of a module.
//
//	go run ./apigate OLD NEW
//
// It prints the changes of NEW that can break programs which were written for OLD, and exits with
// status 1 if there are any.
package main

import (
	"fmt"
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: apigate OLD NEW")
		os.Exit(2)
	}
	before, after := public(os.Args[1]), public(os.Args[2])
	broken := false
	for _, path := range slices.Sorted(maps.Keys(before)) {
		now, ok := after[path]
		if !ok {
			fmt.Printf("%s: removed\n", path)
			broken = true
			continue
		}
		for _, c := range apidiff.Changes(before[path], now).Changes {
			if !c.Compatible {
				fmt.Printf("%s: %s\n", path, c.Message)
				broken = true
			}
		}
	}
	if broken {
		os.Exit(1)
	}
}

// public loads the packages of the module in a folder that other modules can import.
func public(dir string) map[string]*types.Package {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
		Dir:  dir,
	}, "./...")
	if err != nil || packages.PrintErrors(loaded) > 0 {
		fmt.Fprintf(os.Stderr, "apigate: %s does not type-check: %v\n", dir, err)
		os.Exit(2)
	}
	m := map[string]*types.Package{}
	for _, p := range loaded {
		if p.Name != "main" && !strings.Contains(p.PkgPath+"/", "/internal/") {
			m[p.PkgPath] = p.Types
		}
	}
	return m
}
