package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// verb matches a verb of package fmt.
var verb = regexp.MustCompile(`%[#+\-0-9.]*[a-zA-Z]`)

// reasonsOf adds the sentences of the errors that a file makes, each with its errno and the file.
func reasonsOf(t *testing.T, name string, all map[string]string) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	fatal.If(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "New" {
			return true
		}
		if p, ok := f.X.(*ast.Ident); !ok || p.Name != "failure" {
			return true
		}
		errno, ok := call.Args[1].(*ast.SelectorExpr)
		format, ok2 := call.Args[2].(*ast.BasicLit)
		if !ok || !ok2 {
			return true
		}
		if text, err := strconv.Unquote(format.Value); err == nil && strings.Contains(text, " ") {
			text = strings.ReplaceAll(verb.ReplaceAllString(text, "…"), "%%", "%")
			folder, _ := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(name))
			all[text] = fmt.Sprintf("%s\n    %s, %s", text, errno.Sel.Name, filepath.ToSlash(folder))
		}
		return true
	})
}

// TestReasons compares docs/reasons.txt with the sources: the sentences that -v prints for what an adapter refuses, and
// for what makes a request fail.
func TestReasons(t *testing.T) {
	all := map[string]string{}
	for _, root := range []string{"internal/hca", "internal/device", "internal/roce", "mkey", "sig", "xts", "dek"} {
		err := filepath.WalkDir(filepath.Join("..", "..", filepath.FromSlash(root)), func(name string, e fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				reasonsOf(t, name, all)
			}
			return err
		})
		fatal.If(t, err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "The reasons that softmkey run -v prints, in the order of the alphabet; … stands for a value. Below each: the\nerrno, and the package that decides. Made by go generate ./cmd/softmkey.\n\n")
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return strings.Compare(strings.ToLower(strings.TrimLeft(a, "…# ")), strings.ToLower(strings.TrimLeft(b, "…# ")))
	}) {
		fmt.Fprintf(&text, "%s\n", all[key])
	}
	name := filepath.Join("..", "..", "docs", "reasons.txt")
	if *update {
		writeFile(t, name, text.Bytes(), 0o666)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, text.Bytes()) {
		t.Errorf("%s is not up to date (%v): run go generate ./cmd/softmkey", name, err)
	}
	if len(all) < 200 {
		t.Errorf("only %d sentences were found", len(all))
	}
}
