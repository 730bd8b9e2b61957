// Command apicount counts the exported identifiers of a module's public packages, and those that nobody
// uses outside their package and tests.
//
//	go run ./apicount DIR [USER…]
//
// It prints a row for each package of the module in DIR that is neither internal nor a command: the
// exported identifiers at the top level, all of them with methods and fields, the unused ones, and those of
// them that no example shows. The unused ones follow by name, "example" after it if one shows them. USERs
// are folders of other modules whose use counts. What follows from a use counts as used: the types in
// the declaration of what is used, methods that implement an interface of this module or of the standard
// library's io, fmt, encoding, errors and net, and fields with a tag.
package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: apicount DIR [USER…]")
		os.Exit(2)
	}
	var public []*packages.Package
	var interfaces []*types.Interface
	used, shown := map[string]bool{}, map[string]bool{}
	for i, dir := range os.Args[1:] {
		patterns := []string{"./..."}
		if i == 0 {
			patterns = append(patterns, "io", "fmt", "encoding", "net") // in one load, so that their types are equal
		}
		for _, p := range load(dir, patterns...) {
			test := strings.HasSuffix(p.ID, "]") || strings.HasSuffix(p.ID, ".test")
			if !test {
				uses(p, used, p.Syntax)
			} else if strings.HasSuffix(p.PkgPath, "_test") {
				uses(p, shown, slices.DeleteFunc(slices.Clone(p.Syntax), func(f *ast.File) bool {
					return !strings.HasPrefix(filepath.Base(p.Fset.Position(f.Pos()).Filename), "example")
				}))
			}
			if i > 0 || test {
				continue
			}
			interfaces = append(interfaces, interfacesOf(p.Types)...)
			path := p.PkgPath + "/"
			if p.Module != nil && p.Name != "main" && !strings.Contains(path, "/internal/") && !strings.Contains(path, "/cmd/") {
				public = append(public, p)
			}
		}
	}
	interfaces = append(interfaces, errorMethods...)

	var tops, all, idle, bare int
	var names []string
	fmt.Printf("%-24s %9s %5s %7s %10s\n", "package", "top level", "all", "unused", "no example")
	for _, p := range public {
		t, ids := exported(p.Types, interfaces)
		var unused []string
		without := 0
		for id, free := range ids {
			switch {
			case free || used[id]:
			case shown[id]:
				unused = append(unused, id+" example")
			default:
				unused = append(unused, id)
				without++
			}
		}
		slices.Sort(unused)
		names = append(names, unused...)
		fmt.Printf("%-24s %9d %5d %7d %10d\n", short(p.PkgPath), t, len(ids), len(unused), without)
		tops, all, idle, bare = tops+t, all+len(ids), idle+len(unused), bare+without
	}
	fmt.Printf("%-24s %9d %5d %7d %10d: %d of 100 unused\n\n", "all", tops, all, idle, bare, (100*idle+all/2)/max(all, 1))
	for _, name := range names {
		fmt.Println(name)
	}
}

var module string

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

func load(dir string, patterns ...string) []*packages.Package {
	dir, err := filepath.Abs(dir)
	if err != nil {
		panic(err)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedModule |
			packages.NeedImports | packages.NeedDeps,
		Dir: dir, Tests: true,
	}, patterns...)
	if err != nil || packages.PrintErrors(loaded) > 0 {
		fmt.Fprintf(os.Stderr, "apicount: %s does not type-check: %v\n", dir, err)
		os.Exit(1)
	}
	if module == "" {
		module = loaded[0].Module.Path
	}
	return loaded
}

// uses marks what the files of a package use of other packages.
func uses(p *packages.Package, used map[string]bool, files []*ast.File) {
	mark := func(o types.Object) {
		if o == nil || o.Pkg() == nil || o.Pkg() == p.Types {
			return
		}
		used[id(o)] = true
		if _, ok := o.(*types.TypeName); !ok {
			typesIn(o.Type(), used)
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				mark(p.TypesInfo.Uses[n])
			case *ast.CompositeLit:
				s, ok := p.TypesInfo.TypeOf(n).Underlying().(*types.Struct)
				if !ok || len(n.Elts) == 0 {
					break
				}
				if _, keyed := n.Elts[0].(*ast.KeyValueExpr); !keyed {
					for v := range s.Fields() {
						mark(v)
					}
				}
			}
			return true
		})
	}
}

// typesIn marks the named types in the declaration of a function, variable or field.
func typesIn(t types.Type, used map[string]bool) {
	switch t := t.(type) {
	case *types.Named:
		if t.Obj().Pkg() != nil {
			used[id(t.Obj())] = true
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			typesIn(v.Type(), used)
		}
		for v := range t.Results().Variables() {
			typesIn(v.Type(), used)
		}
	case interface{ Elem() types.Type }: // pointers, slices, arrays, maps and channels
		typesIn(t.Elem(), used)
	}
}

// exported returns the number of exported identifiers at the top level, and all of them with methods
// and fields: true if their use need not be seen.
func exported(p *types.Package, interfaces []*types.Interface) (top int, ids map[string]bool) {
	ids = map[string]bool{}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		top++
		ids[id(o)] = false
		t, ok := o.(*types.TypeName)
		if !ok || t.IsAlias() {
			continue
		}
		named := t.Type().(*types.Named)
		for m := range named.Methods() {
			if m.Exported() {
				ids[id(m)] = slices.ContainsFunc(interfaces, func(i *types.Interface) bool {
					has, _, _ := types.LookupFieldOrMethod(i, false, m.Pkg(), m.Name())
					return has != nil && (types.Implements(named, i) || types.Implements(types.NewPointer(named), i))
				})
			}
		}
		switch u := named.Underlying().(type) {
		case *types.Struct:
			for i := range u.NumFields() {
				if v := u.Field(i); v.Exported() {
					ids[id(v)] = u.Tag(i) != ""
				}
			}
		case *types.Interface:
			for m := range u.ExplicitMethods() {
				if m.Exported() {
					ids[id(m)] = false
				}
			}
		}
	}
	return top, ids
}

func interfacesOf(p *types.Package) (list []*types.Interface) {
	for _, name := range p.Scope().Names() {
		if t, ok := p.Scope().Lookup(name).(*types.TypeName); ok {
			if i, ok := t.Type().Underlying().(*types.Interface); ok && i.NumMethods() > 0 {
				list = append(list, i)
			}
		}
	}
	return list
}

// errorMethods are the interfaces without a name that package errors looks for, and error.
var errorMethods = func() (list []*types.Interface) {
	method := func(name string, in, out types.Type) {
		var params *types.Tuple
		if in != nil {
			params = types.NewTuple(types.NewParam(0, nil, "", in))
		}
		s := types.NewSignatureType(nil, nil, nil, params, types.NewTuple(types.NewParam(0, nil, "", out)), false)
		list = append(list, types.NewInterfaceType([]*types.Func{types.NewFunc(0, nil, name, s)}, nil).Complete())
	}
	failure := types.Universe.Lookup("error").Type()
	method("Error", nil, types.Typ[types.String])
	method("Unwrap", nil, failure)
	method("Is", failure, types.Typ[types.Bool])
	method("As", types.Universe.Lookup("any").Type(), types.Typ[types.Bool])
	method("Timeout", nil, types.Typ[types.Bool])
	return list
}()

// owners has the name of the struct or interface that declares a field or method.
var owners = map[types.Object]string{}

// id names an identifier: package.Name or package.Type.Name, equal in all loads.
func id(o types.Object) string {
	switch v := o.(type) {
	case *types.Func:
		o = v.Origin()
	case *types.Var:
		o = v.Origin()
	}
	if o.Parent() == o.Pkg().Scope() {
		return short(o.Pkg().Path()) + "." + o.Name()
	}
	if len(owners) == 0 || owners[o] == "" {
		index(o.Pkg())
	}
	return short(o.Pkg().Path()) + "." + owners[o] + "." + o.Name()
}

func index(p *types.Package) {
	for _, name := range p.Scope().Names() {
		t, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || t.IsAlias() {
			continue
		}
		named, ok := t.Type().(*types.Named)
		if !ok {
			continue
		}
		for m := range named.Methods() {
			owners[m] = name
		}
		switch u := named.Underlying().(type) {
		case *types.Struct:
			for v := range u.Fields() {
				owners[v] = name
			}
		case *types.Interface:
			for m := range u.ExplicitMethods() {
				owners[m] = name
			}
		}
	}
}
