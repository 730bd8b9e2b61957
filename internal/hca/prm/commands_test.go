package prm

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bounded are the commands whose objects take no place in a guest's quota of memory: small tables limit their number.
var bounded = []Command{CmdCreateEQ, CmdAllocQCounter, CmdAllocUAR, CmdAttachMCG, CmdCreateFlowTable, CmdCreateFlowGroup, CmdSetFlowEntry, CmdCreateUser}

// TestCommandTable holds the columns of the table against each other.
func TestCommandTable(t *testing.T) {
	names, destroyed, nouns := map[string]Command{}, map[Command]Command{}, map[string]Object{}
	for c, s := range commands {
		if other, twice := names[s.Name]; s.Name == "" || twice {
			t.Errorf("%#x and %#x have the name %q", uint16(c), uint16(other), s.Name)
		}
		names[s.Name] = c
		if (s.Object == "") != (s.Does == General) {
			t.Errorf("%v: it is about %q, and its effect is %d", c, s.Object, s.Does)
		}
		if _, noun, _ := strings.Cut(s.Name, "_"); s.Does != General {
			if other, known := nouns[noun]; known && other != s.Object {
				t.Errorf("%v is about %q, and another command of that name about %q", c, s.Object, other)
			}
			nouns[noun] = s.Object
		}
		if s.Flags&(ByDriver|ByUser|ByProgram|ByDEVX) == 0 || s.Has(ByUser) && !s.Has(ByDriver) {
			t.Errorf("%v: callers %#x", c, s.Flags)
		}
		if s.In > s.Most || (s.Out == 0) != (s.Most == 0) || s.In != 0 && s.In < CommandHeaderSize || s.Out != 0 && s.Out < CommandHeaderSize {
			t.Errorf("%v: sizes %+v", c, s.Sizes)
		}
		if s.Has(ByProgram) && s.Most == 0 {
			t.Errorf("%v: the adapter executes it, and its sizes are missing", c)
		}
		if s.Does != Makes {
			if s.Destroyer != 0 || s.Bytes != 0 {
				t.Errorf("%v makes nothing, and has a destroyer (%v) or a cost (%d)", c, s.Destroyer, s.Bytes)
			}
			continue
		}
		if counted := s.Bytes > 0; s.Has(ByDriver) && counted == slices.Contains(bounded, c) {
			t.Errorf("%v: %d bytes in the quota of a guest", c, s.Bytes)
		}
		if s.Destroyer == 0 {
			continue
		}
		if other, twice := destroyed[s.Destroyer]; twice {
			t.Errorf("%v destroys what %v and %v make", s.Destroyer, c, other)
		}
		destroyed[s.Destroyer] = c
		end := s.Destroyer.Spec()
		if end.Does != Destroys || end.Object != s.Object || end.Flags&^ByDEVX != s.Flags&^ByDEVX {
			t.Errorf("%v makes %q by %#x, and %v destroys %q by %#x", c, s.Object, s.Flags, s.Destroyer, end.Object, end.Flags)
		}
	}
	for c, s := range commands {
		if s.Does == Destroys && destroyed[c] == 0 && c != CmdDetachMCG { // which needs the group in addition
			t.Errorf("%v destroys what no command makes", c)
		}
	}
}

// TestDestruction encodes the command that destroys what a command made, and decodes it: for every command that makes
// something, and for two types of general objects with one number.
func TestDestruction(t *testing.T) {
	seen := map[Destruction]string{}
	check := func(c Command, mod uint16, i int) {
		in, out := make([]byte, CommandHeaderSize), make([]byte, 0x20)
		PutCommand(in, c, mod)
		SetBits(in, 0x40, 4, 4) // PSVs
		PutNumber(out, 5)
		if c == CmdCreateObject {
			PutObjectID(out, 5)
		}
		if c == CmdCreatePSV {
			PutPSVs(out, []uint32{5, 6, 7, 8})
		}
		d, ok := DestructionOf(in, out, i)
		if !ok {
			return
		}
		name := fmt.Sprintf("%v of type %#x, object %d", c, mod, i)
		if other, twice := seen[d]; twice {
			t.Errorf("%s and %s are destroyed by one command: %+v", name, other, d)
		}
		seen[d] = name
		if d.Command != c.Spec().Destroyer || d.Type != mod || d.Number != uint32(5+i) {
			t.Errorf("%s is destroyed by %+v", name, d)
		}
		clear(in)
		d.Put(in)
		if got, _ := OpcodeOf(in); got != d.Command || ParseDestruction(got, in) != d {
			t.Errorf("%s: %+v became %+v", name, d, ParseDestruction(got, in))
		}
	}
	for c, s := range commands {
		n := 0
		if s.Does == Makes {
			n = 1
		}
		if c == CmdCreatePSV {
			n = 4
		}
		in := make([]byte, CommandHeaderSize)
		PutCommand(in, c, 0)
		SetBits(in, 0x40, 4, 4)
		if got := Objects(in); got != n {
			t.Errorf("%v makes %d objects, want %d", c, got, n)
		}
		for i := range n {
			check(c, 0, i)
		}
	}
	check(CmdCreateObject, ObjectDEK, 0)
	check(CmdCreateObject, ObjectCryptoLogin, 0)
}

// TestAnswersFit fills answers whose commands have fields of their own. Every field lies in the room that the command asks for.
func TestAnswersFit(t *testing.T) {
	for c, put := range map[Command]func(out []byte){
		CmdCreatePSV:     func(out []byte) { PutPSVs(out, []uint32{0xffffff, 0xffffff, 0xffffff, 0xffffff}) },
		CmdQueryQP:       func(out []byte) { PutQP(out, &QPContext{DBUmem: 1<<32 - 1}) },
		CmdQueryDCT:      func(out []byte) { PutDCT(out, &DCT{Key: 1<<64 - 1, MTU: 7, Port: 1, MinRNRNAK: 31}) },
		CmdQueryRMP:      func(out []byte) { PutRMP(out, 0xffff, 31, 15, true) },
		CmdQueryXRCSRQ:   func(out []byte) { PutXRCSRQ(out, 0xffff, 15, 7, true) },
		CmdQueryNICVPort: PutRoCEEnabled,
	} {
		out := make([]byte, 0x1000)
		put(out)
		if n, room := len(bytes.TrimRight(out, "\x00")), c.Spec().Out; n == 0 || n > room {
			t.Errorf("%v: %d bytes in the answer, and it asks for %d", c, n, room)
		}
	}
}

// TestFieldsFit decodes commands of the least size, and longer ones. No field lies beyond the least size, except for the
// lists that follow, and those of CREATE_MKEY and of changes of a QP's state, which short commands of libraries do not have.
func TestFieldsFit(t *testing.T) {
	for c, parse := range map[Command]func(in []byte) any{
		CmdCreateCQ:     func(in []byte) any { return ParseCreateCQ(in) },
		CmdCreateQP:     func(in []byte) any { return ParseQP(in) },
		CmdCreateRMP:    func(in []byte) any { return ParseWorkQueue(in) },
		CmdCreateXRCSRQ: func(in []byte) any { return ParseCreateXRCSRQ(in) },
		CmdCreateDCT:    func(in []byte) any { return ParseDCT(in) },
		CmdCreatePSV:    func(in []byte) any { return ParseCreatePSV(in) },
		CmdModifyCQ:     func(in []byte) any { return ParseModifyCQ(in) },
		CmdModifyRMP:    func(in []byte) any { limit, ok := ParseModifyRMP(in); return [...]any{limit, ok} },
		CmdArmXRCSRQ:    func(in []byte) any { return ParseArmXRCSRQ(in) },
	} {
		long := bytes.Repeat([]byte{0xff}, 0x1000)
		if short := parse(long[:c.Spec().In]); short != parse(long) {
			t.Errorf("%v of %d bytes: %+v, of more %+v", c, c.Spec().In, short, parse(long))
		}
	}
}

// packages gives the type checker this package, and empty ones for all others: their names stay unknown,
// which it reports as errors that nobody reads.
type packages struct{ prm *types.Package }

func (p packages) Import(path string) (*types.Package, error) {
	if strings.HasSuffix(path, "/hca/prm") && p.prm != nil {
		return p.prm, nil
	}
	empty := types.NewPackage(path, filepath.Base(path))
	empty.MarkComplete()
	return empty, nil
}

// TestOpcodesHaveNames looks for opcodes of the table that stand as numbers in other files, here and in all
// packages beside this one.
func TestOpcodesHaveNames(t *testing.T) {
	set := token.NewFileSet()
	sources := map[string][]*ast.File{} // by folder and name of the package
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err == nil {
			key := filepath.Dir(path) + " " + f.Name.Name
			sources[key] = append(sources[key], f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const own = "../prm prm"
	var imports packages
	check := func(key string) *types.Package {
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
		conf := types.Config{Importer: imports, Error: func(error) {}}
		p, _ := conf.Check("github.com/softmkey/softmkey/internal/hca/prm", set, sources[key], info)
		for e, tv := range info.Types {
			at := set.Position(e.Pos())
			if _, literal := e.(*ast.BasicLit); !literal || filepath.Base(at.Filename) == "commands.go" || !strings.HasSuffix(tv.Type.String(), "hca/prm.Command") {
				continue
			}
			if v, _ := constant.Uint64Val(tv.Value); commands[Command(v)].Name != "" {
				t.Errorf("%v: %#x is an opcode: it has a name in commands.go", at, v)
			}
		}
		return p
	}
	imports.prm = check(own)
	if imports.prm.Scope().Lookup("Command") == nil {
		t.Fatalf("the type is not in %s", own)
	}
	for key := range sources {
		if key != own {
			check(key)
		}
	}
}
