package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/internal/tool/outfile"
)

// The annotations of flags that name files, if their type does not say it: of files that the command writes, and of
// lists of [ID=]FILE that it reads.
const (
	writesFile = "softmkey_writes_file"
	readsFiles = "softmkey_reads_files"
)

// annotate gives flags of a command an annotation.
func annotate(c *cobra.Command, what string, flags ...string) {
	for _, name := range flags {
		must(c.Flags().SetAnnotation(name, what, []string{"true"}))
	}
}

// namedFile is a file on a command line.
type namedFile struct {
	name    string
	flag    string // that names it; empty: an operand
	written bool
}

func (f namedFile) String() string {
	if f.flag == "" {
		return f.name
	}
	return "--" + f.flag + " " + f.name
}

// distinctFiles refuses a command line on which a file that the command writes is another one that it uses. It
// would be lost, as a key would under the data that it has encrypted. Two operands are compared when they are open.
func distinctFiles(c *cobra.Command, operands []string) error {
	var files []namedFile
	if c.Annotations[runsProgram] == "" {
		hasOut := c.Flags().Lookup("risk-power-loss") != nil
		for i, name := range operands {
			files = append(files, namedFile{name: name, written: hasOut && i == len(operands)-1})
		}
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		written := f.Annotations[writesFile] != nil
		switch list, isList := f.Value.(pflag.SliceValue); {
		case isList && f.Annotations[readsFiles] != nil:
			for _, v := range list.GetSlice() {
				if _, name, ok := strings.Cut(v, "="); ok {
					v = name
				}
				files = append(files, namedFile{v, f.Name, written})
			}
		case written || f.Value.Type() == "FILE":
			files = append(files, namedFile{f.Value.String(), f.Name, written})
		}
	})
	for i, a := range files {
		for _, b := range files[:i] {
			if (a.written || b.written) && a.flag+b.flag != "" && a.name != "-" && b.name != "-" && outfile.Collides(a.name, b.name) {
				return usage(c, fmt.Errorf("%v and %v are the same file", a, b))
			}
		}
	}
	return nil
}

// runsProgram is the annotation of a command whose operands are a program and its arguments.
const runsProgram = "softmkey_runs_program"
