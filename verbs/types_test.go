package verbs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVocabulary checks the documentation of package rdma: package verbs has an
// alias for every exported name except those that the documentation lists.
func TestVocabulary(t *testing.T) {
	paths, err := filepath.Glob("../rdma/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	rdma, err := doc.NewFromFiles(fset, files, "rdma")
	if err != nil {
		t.Fatal(err)
	}
	leftOut := map[string]bool{}
	for _, m := range regexp.MustCompile(`\[(\w+)\]`).FindAllStringSubmatch(rdma.Doc, -1) {
		leftOut[m[1]] = true
	}
	var names []string
	for _, c := range rdma.Consts {
		names = append(names, c.Names...)
	}
	for _, d := range rdma.Types {
		names = append(names, d.Name)
		for _, c := range d.Consts {
			names = append(names, c.Names...)
		}
		for _, f := range d.Funcs {
			names = append(names, f.Name)
		}
	}
	here, err := os.ReadFile("types.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != "WROp" && strings.HasPrefix(name, "WR") {
			continue // the documentation lists them as the range WRWrite to WRNop
		}
		if has := regexp.MustCompile(`\brdma\.` + name + `\b`).Match(here); has == leftOut[name] {
			t.Errorf("rdma.%s: verbs has it: %v, the document of rdma leaves it out: %v", name, has, leftOut[name])
		}
	}
}
