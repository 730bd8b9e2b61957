package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestMessages looks for lines that are printed without message, which escapes the text of peers and the names of
// files.
func TestMessages(t *testing.T) {
	bare := regexp.MustCompile("Fprint[a-z]*\\(.*[\"`]softmkey: ")
	files, err := filepath.Glob("*.go")
	fatal.If(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		fatal.If(t, err)
		for i, line := range strings.Split(string(b), "\n") {
			if name != "message.go" && !strings.HasSuffix(name, "_test.go") && bare.MatchString(line) {
				t.Errorf("%s:%d prints a line without message: %s", name, i+1, line)
			}
		}
	}
}

// TestEncodeJSON prints characters that control terminals, and reads them back.
func TestEncodeJSON(t *testing.T) {
	for _, text := range []string{"\x1b[2J\n", "\u009b31m\u202e\x7f", "plain, \"quoted\" <ü> \U0001f600"} {
		var out bytes.Buffer
		encodeJSON(&out, text)
		var back string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != text {
			t.Errorf("%q is read as %q: %v", text, back, err)
		}
		if strings.ContainsFunc(strings.TrimSuffix(out.String(), "\n"), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", out.String())
		}
	}
}
