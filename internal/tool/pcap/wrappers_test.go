package pcap

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
)

// wrappers are the types of this module that wrap a packetconn.Conn, by package and name.
// TestWrappersAreKnown finds those that are missing here.
var wrappers = map[string]func(packetconn.Conn) packetconn.Conn{
	"netem.Conn":    func(c packetconn.Conn) packetconn.Conn { return netem.Wrap(c, 1, netem.Faults{}, nil) },
	"pcap.conn":     func(c packetconn.Conn) packetconn.Conn { return NewRecorder(&bytes.Buffer{}, nil).Wrap(c) },
	"netconn.plain": func(c packetconn.Conn) packetconn.Conn { return netconn.Of(c) },
}

// sockets are the types with a packetconn.Conn that they have opened themselves. They wrap no Conn of
// a caller.
var sockets = []string{"share.Conn", "session.beside"}

// able is a network with every optional ability.
type able struct {
	packetconn.Conn
	raw    syscall.RawConn
	groups *[]netip.Addr
}

type rawConn struct{ syscall.RawConn }

func (a able) SyscallConn() (syscall.RawConn, error) { return a.raw, nil }

func (a able) Member() uint32 { return 5 }

func (a able) Shared() bool { return true }

func (a able) Claim(uint64) (func(), error) { return func() {}, nil }

func (a able) Join(group netip.Addr) (packetconn.Conn, error) {
	*a.groups = append(*a.groups, group)
	return member{a.Conn, netip.AddrPortFrom(group, 4791)}, nil
}

// abilities has a test for each optional ability of a Conn, which returns an error if c lacks the
// ability of a.
var abilities = map[string]func(t *testing.T, a able, c packetconn.Conn) error{
	"Joiner": func(t *testing.T, a able, c packetconn.Conn) error {
		group := netip.MustParseAddr("239.1.2.3")
		g, err := netconn.Join(c, group)
		if err == nil && (g.LocalAddr().Addr() != group || !slices.Equal(*a.groups, []netip.Addr{group})) {
			t.Errorf("joined %v, the network %v", g.LocalAddr(), *a.groups)
		}
		return err
	},
	"Member": func(t *testing.T, a able, c packetconn.Conn) error {
		m, ok := netconn.As[netconn.Member](c)
		if !ok {
			return errors.ErrUnsupported
		}
		if m.Member() != 5 || !m.Shared() {
			t.Errorf("another member: %d", m.Member())
		}
		return nil
	},
	"syscall.Conn": func(t *testing.T, a able, c packetconn.Conn) error {
		raw, err := netconn.SyscallConn(c)
		if err == nil && raw != a.raw {
			t.Error("another descriptor")
		}
		return err
	},
}

// TestWrappersForwardAbilities asks for each ability through each wrapper, and through two.
func TestWrappersForwardAbilities(t *testing.T) {
	n := inproc.NewNetwork(nil)
	for ability, ask := range abilities {
		for outer, wrap := range wrappers {
			for inner, first := range wrappers {
				t.Run(ability+" through "+outer+" and "+inner, func(t *testing.T) {
					plain := mustListen(t, n, "10.0.0.1:0")
					defer plain.Close()
					a := able{plain, &rawConn{}, new([]netip.Addr)}
					if err := ask(t, a, wrap(first(a))); err != nil {
						t.Error(err)
					}
					if err := ask(t, a, wrap(first(plain))); !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, errors.ErrUnsupported) {
						t.Errorf("a network without the ability: %v", err)
					}
				})
			}
		}
	}
}

// TestWrappersAreKnown finds the types that wrap a packetconn.Conn in the source, and compares them
// with wrappers and sockets. It also finds code that asserts that a Conn is a packetconn.Joiner:
// such code must call netconn.Join, which also asks the wrapped Conn. Examples are left out,
// because they cannot be imported.
func TestWrappersAreKnown(t *testing.T) {
	const root = "../../.."
	holds, sends := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"testdata", "bench", "interop", "examples", ".git", "bin"}, d.Name()) && path != root+"/internal/tool/bench":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		pkg := file.Name.Name + "."
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				s, ok := n.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for _, f := range s.Fields.List {
					if isName(f.Type, "packetconn", "Conn") || isName(f.Type, "netconn", "Conn") {
						holds[pkg+n.Name.Name] = true
						if len(f.Names) == 0 {
							sends[pkg+n.Name.Name] = true // embedded
						}
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "Send" {
					recv := n.Recv.List[0].Type
					if p, ok := recv.(*ast.StarExpr); ok {
						recv = p.X
					}
					if id, ok := recv.(*ast.Ident); ok {
						sends[pkg+id.Name] = true
					}
				}
			case *ast.TypeAssertExpr:
				if n.Type != nil && isName(n.Type, "packetconn", "Joiner") {
					t.Errorf("%s asserts a packetconn.Joiner: use netconn.Join", path)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for name := range holds {
		if !sends[name] || slices.Contains(sockets, name) {
			continue
		}
		found++
		if wrappers[name] == nil {
			t.Errorf("%s wraps a packetconn.Conn and is not in the table of wrappers", name)
		}
	}
	if found != len(wrappers) {
		t.Errorf("%d wrappers were found, the table has %d", found, len(wrappers))
	}
}

// isName reports whether e is pkg.name.
func isName(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == pkg
}
