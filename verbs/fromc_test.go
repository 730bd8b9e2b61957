package verbs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// names adds the exported names of a package to a set: X for a declaration, T.M for a
// method or a field, and M alone, since tables name methods under a heading of their type.
func names(t *testing.T, set map[string]bool, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %d files", dir, err, len(files))
	}
	prefix := filepath.Base(dir) + "."
	add := func(owner string, id *ast.Ident) {
		if !id.IsExported() {
			return
		}
		set[prefix+id.Name], set[id.Name] = true, true
		if owner != "" {
			set[prefix+owner+"."+id.Name], set[owner+"."+id.Name] = true, true
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		fatal.If(t, err)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				owner := ""
				if d.Recv != nil {
					kind := d.Recv.List[0].Type
					if star, ok := kind.(*ast.StarExpr); ok {
						kind = star.X
					}
					if id, ok := kind.(*ast.Ident); ok {
						owner = id.Name
					}
				}
				add(owner, d.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add("", id)
						}
					case *ast.TypeSpec:
						add("", s.Name)
						if st, ok := s.Type.(*ast.StructType); ok {
							for _, f := range st.Fields.List {
								for _, id := range f.Names {
									add(s.Name.Name, id)
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestFromC looks for every Go name in the tables of docs/from-c.md.
func TestFromC(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "from-c.md"))
	fatal.If(t, err)
	known := map[string]bool{}
	for _, dir := range []string{"verbs", "rdma", "mkey", "sig", "dek", "xts"} {
		names(t, known, dir)
	}
	code := regexp.MustCompile("`([^`]+)`")
	name := regexp.MustCompile(`^([a-z]+\.)?[A-Z]\w*(\.[A-Z]\w*)*$`)
	found := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(strings.Join(cells[2:], "|"), -1) {
			id, _, _ := strings.Cut(m[1], "(")
			if !name.MatchString(id) || strings.HasPrefix(id, "MLX5DV_") {
				continue
			}
			found++
			id = strings.TrimPrefix(id, "verbs.")
			if rest, ok := strings.CutPrefix(id, "Sig."); ok {
				id = "sig.Error." + rest // a field of BadBlock
			}
			if !known[id] {
				t.Errorf("%s: no such name", id)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found in the tables", found)
	}
}
