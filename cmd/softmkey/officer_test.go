//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/dek"
)

// TestOfficer runs a program of libmlx5 while a crypto officer rotates its KEK, revokes its
// credential, and puts its DEK into state error.
func TestOfficer(t *testing.T) {
	program, example, dir := builtProgram(t), buildExample(t, "rotation"), t.TempDir()
	oldKEK, newKEK, credential, key := sequence(100, 16), sequence(140, 32), sequence(0, 40), sequence(1, 32)
	wrap := func(kek, secret []byte) []byte {
		wrapped, err := dek.Wrap(kek, secret)
		if err != nil {
			t.Fatal(err)
		}
		return wrapped
	}
	for name, b := range map[string][]byte{
		"old.kek": oldKEK, "new.kek": newKEK, "credential": credential,
		"old.credential": wrap(oldKEK, credential), "new.credential": wrap(newKEK, credential),
		"old.key": wrap(oldKEK, key), "new.key": wrap(newKEK, key),
	} {
		writeFile(t, filepath.Join(dir, name), b, 0o600)
	}
	// Each step is a line of the program's input, and the output that must follow.
	steps := [][2]string{
		{"", "login: done"},
		{"", "create: done"},
		{"state", "state: valid"},
		{"!SOFTMKEY officer list s", "import mode: wrapped"},
		{"", "kek 3"},
		{"", "credential 5"},
		{"", "dek mlx5_0 NUMBER: 128 bits, process NUMBER"},
		{"use", "use: success"},
		{"!SOFTMKEY officer replace-kek s 3=new.kek", ""},
		{"state", "state: invalid"},
		{"use", "use: success"}, // a DEK that exists can be used without a login
		{"dek", "dek: EINVAL"},
		{"create new.key", "create: EIO"},
		{"login new.credential", "login: EEXIST"},
		{"logout", "logout: done"},
		{"state", "state: no login"},
		{"login old.credential", "login: EINVAL"},
		{"login new.credential", "login: done"},
		{"dek", "dek: ready"},
		{"create old.key", "create: EINVAL"},
		{"create new.key", "create: done"},
		{"!SOFTMKEY officer delete-credential s 5", ""},
		{"state", "state: invalid"},
		{"!SOFTMKEY officer add-credential s 5=credential", ""},
		{"state", "state: invalid"},
		{"logout", "logout: done"},
		{"login new.credential", "login: done"},
		{"!! SOFTMKEY officer delete-kek s 4", "softmkey: officer: kek delete: id 0x4 is not on the device"},
		{"!! SOFTMKEY officer fail-dek s mlx5_7 1", `softmkey: officer: dek fail: device "mlx5_7" does not exist`},
		{"!SOFTMKEY officer fail-dek s mlx5_0 $(SOFTMKEY officer list s | sed -n '/^dek/{s/.* \\(0x[0-9a-f]*\\):.*/\\1/p;q}')", ""},
		{"dek", "dek: error"},
		{"use", "use: local protection error"},
	}
	var input, want strings.Builder
	for _, s := range steps {
		if s[0] != "" {
			fmt.Fprintln(&input, strings.ReplaceAll(strings.Replace(s[0], "!! ", "!! 2>&1 ", 1), "SOFTMKEY", program))
		}
		if s[1] != "" {
			fmt.Fprintln(&want, s[1])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program, "run", "--device", ownAddress(5), "--crypto", "wrapped", "--officer", "s",
		"--kek", "3=old.kek", "--credential", "5=credential", "--", example, "5", "3", "old.credential", "old.key")
	c.Dir, c.Stdin = dir, strings.NewReader(input.String())
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	got := regexp.MustCompile(`0x[0-9a-f]+:|process \d+`).ReplaceAllStringFunc(string(out), func(s string) string {
		if strings.HasPrefix(s, "0x") {
			return "NUMBER:"
		}
		return "process NUMBER"
	})
	if err != nil || got != want.String() {
		t.Errorf("%v\n%s\ngot:\n%s\nwant:\n%s", err, &stderr, got, want.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "s")); !os.IsNotExist(err) {
		t.Errorf("the socket after the run: %v", err)
	}
}
