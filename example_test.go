package softmkey_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// The snippet of README.md: TestSnippets compares them.
func Example_blocks() {
	lba, src := 7, make([]byte, 1024)

	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: uint64(lba)}
	dst := make([]byte, dif.StreamLen(int64(len(src))))
	n, err := dif.Protect(dst, src)
	fmt.Println(n, err)
	err = dif.Verify(dst)
	fmt.Println(err)
	// Output:
	// 1040 <nil>
	// <nil>
}

// TestSnippets checks that each line of Go in README.md and docs is a line of an example, which compiles.
func TestSnippets(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := filepath.Glob("docs/*.md")
	for _, name := range append(pages, "README.md") {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1) {
			for line := range strings.Lines(string(m[1])) {
				code, _, _ := strings.Cut(line, " //")
				if code = strings.TrimSpace(code); !strings.Contains(string(example), "\t"+code+"\n") {
					t.Errorf("%s: %q is in no example", name, code)
				}
			}
		}
	}
}

// A memory key over one block: a reader of the wire domain gets the data and its field.
func Example() {
	memory := make(mkey.Bytes, 512)
	key, err := mkey.New(mkey.KeyConfig{
		Layout:    mkey.List{{Memory: memory, Length: 512}},
		Signature: &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	tx, err := key.NewReader(0, 520)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Close()
	wire := make([]byte, 520)
	if _, err := tx.ReadAt(wire, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("% x\n", wire[512:])
	// Output: 00 00 56 78 00 00 00 01
}
