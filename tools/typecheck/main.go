// Command typecheck type-checks a module and its tests for other platforms, from source.
//
//	go run ./typecheck DIR GOOS/GOARCH…
//
// It exists because go vet would first compile the standard library for each platform, which
// takes minutes with an empty build cache.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, platform := range os.Args[2:] {
		goos, goarch, _ := strings.Cut(platform, "/")
		loaded, err := packages.Load(&packages.Config{
			Mode:  packages.LoadAllSyntax,
			Dir:   os.Args[1],
			Tests: true,
			Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		}, "./...")
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
			os.Exit(1)
		}
		if packages.PrintErrors(loaded) > 0 {
			fmt.Fprintf(os.Stderr, "%s: does not type-check\n", platform)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
