package luks

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// changed calls a function for a JSON value in which each member of each object, in turn, is absent or another value.
func changed(t testing.TB, all map[string]any, try func(what string, area []byte)) {
	emit := func(format string, args ...any) {
		area, err := json.Marshal(all)
		fatal.If(t, err)
		try(fmt.Sprintf(format, args...), area)
	}
	var walk func(v map[string]any, path string)
	walk = func(v map[string]any, path string) {
		for name, old := range v {
			for _, now := range []any{nil, -1, "1x", "40960", []any{"9"}, map[string]any{}} {
				v[name] = now
				emit("%s%s=%v", path, name, now)
			}
			delete(v, name)
			emit("%s%s absent", path, name)
			v[name] = old
			if below, ok := old.(map[string]any); ok {
				walk(below, path+name+".")
			}
		}
	}
	walk(all, "")
}

// TestAsCryptsetup: cryptsetup reads each header that softmkey reads. It reads more: other ciphers, hashes and layouts.
func TestAsCryptsetup(t *testing.T) {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skip("cryptsetup is missing: install the Debian package cryptsetup-bin")
	}
	var all map[string]any
	fatal.If(t, json.Unmarshal(areaOf(t), &all))
	name, read := filepath.Join(t.TempDir(), "device"), 0
	changed(t, all, func(what string, area []byte) {
		b := withArea(t, area)
		if _, err := Read(bytes.NewReader(b)); err != nil {
			return
		}
		read++
		fatal.If(t, cmp.Or(os.WriteFile(name, b, 0o600), os.Truncate(name, 2<<20)))
		if out, err := exec.Command("cryptsetup", "luksDump", name).CombinedOutput(); err != nil {
			t.Errorf("%s: softmkey reads it, and cryptsetup not: %s", what, out)
		}
	})
	if read == 0 {
		t.Error("softmkey reads none")
	}
}
