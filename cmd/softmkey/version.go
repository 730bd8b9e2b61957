package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		GroupID: groupOther,
		Short:   "Print the version, and the instructions that are used",
		Long: `Version prints the version, the version of Go, the platform, and the instruction set that
the kernels use on this machine. The environment variable SOFTMKEY_CPU selects a smaller
one: generic, avx2, vaes, avx512 or neon.`,
		Args: operands(),
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprint(c.OutOrStdout(), versionLine())
			return nil
		},
	}
}

// versionLine returns the output of "softmkey version" and of "softmkey --version".
func versionLine() string {
	return fmt.Sprintf("softmkey %s %s %s/%s %v\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, cpu.Best())
}

// release is the version and commit of a released binary. The linker sets it; it is empty in other
// builds.
var release string

// version returns the version of the module and, for a build of a checkout, its
// commit.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		// A pseudo-version contains its commit already.
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
			v += " " + s.Value[:12]
		}
	}
	return v
}
