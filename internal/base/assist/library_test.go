//go:build linux

package assist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// testLibrary builds libsoftmkey-run.so.
func testLibrary(t *testing.T) (path string) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if text, err := exec.Command("../../../scripts/library.sh", dir).CombinedOutput(); err != nil || len(text) > 0 {
		t.Fatalf("%v\n%s", err, text)
	}
	return filepath.Join(dir, "libsoftmkey-run.so")
}

// The library's structures are those of libibverbs, where its header is installed, and it needs no other library.
func TestLibrary(t *testing.T) {
	dir := filepath.Dir(testLibrary(t))
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip(err)
	}
	if text, err := exec.Command("cc", "-c", "-o", dir+"/check.o", "library/abi_check.c").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// Programs call the functions of libibverbs that they call without the library, wherever these are: in a copy of
// libibverbs with another name, or in a plugin.
func TestNextDefinition(t *testing.T) {
	library := testLibrary(t)
	for _, compiler := range []string{"cc", "musl-gcc"} {
		t.Run(compiler, func(t *testing.T) {
			if _, err := exec.LookPath(compiler); err != nil {
				t.Skip("NOT RUN: ", err)
			}
			dir := t.TempDir()
			build := func(file string, args ...string) {
				t.Helper()
				all := append([]string{"-w", "-O2", "-fPIC", "-DLEAVE=0", `-DNAME=""`, "-o", filepath.Join(dir, file), "-L" + dir, "-Wl,--no-as-needed,-rpath," + dir}, args...)
				if text, err := exec.Command(compiler, all...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", file, err, text)
				}
			}
			const c, caller, shared = "testdata/copy.c", "testdata/caller.c", "-shared"
			build("libibverbs.so.1", shared, "-DID=10", "-Wl,-soname,libibverbs.so.1", c)
			build("libibverbs-renamed.so.1", shared, "-DID=20", "-Wl,-soname,libibverbs-renamed.so.1", c)
			build("wrapper.so", shared, "-Wl,-soname,wrapper.so", "testdata/wrapper.c")
			build("host", "testdata/host.c")
			build("system", caller, "-l:libibverbs.so.1")
			build("renamed", caller, "-l:libibverbs-renamed.so.1")
			build("wrapped", caller, "-l:wrapper.so", "-l:libibverbs-renamed.so.1")
			build("built-in", "-DID=30", "-rdynamic", caller, c)
			build("system.so", shared, caller, "-l:libibverbs.so.1")
			build("renamed.so", shared, caller, "-l:libibverbs-renamed.so.1")
			build("leaving.so", shared, "-DLEAVE=1", caller, "-l:libibverbs-renamed.so.1")
			build("static.so", shared, "-DID=40", caller, c)
			build("symbolic.so", shared, "-DID=50", "-Wl,-Bsymbolic", caller, c)
			build("alone.so", shared, "-Wl,-soname,alone.so", `-DNAME="alone: "`, caller)
			build("root.so", shared, "-xc", "/dev/null", "-l:alone.so", "-l:libibverbs-renamed.so.1")
			for _, args := range [][]string{
				{"system"}, {"renamed"}, {"wrapped"}, {"built-in"},
				{"host", "", "system.so"}, {"host", "", "renamed.so"}, {"host", "", "static.so"}, {"host", "", "symbolic.so"},
				{"host", "", "system.so", "", "renamed.so", "", "static.so", "", "symbolic.so"},
				{"host", "", "static.so", "", "renamed.so", "", "system.so"},
				{"host", "g", "renamed.so", "", "system.so"},
				{"host", "d", "renamed.so", "d", "system.so", "d", "static.so"},
				{"host", "", "root.so"},
				{"host", "t", "renamed.so"}, {"host", "t", "static.so"},
				{"host", "c", "leaving.so", "c", "renamed.so", "c", "leaving.so", "c", "static.so", "c", "system.so"},
			} {
				run := func(env string) string {
					for i := 1; i < len(args); i++ {
						if strings.HasSuffix(args[i], ".so") {
							args[i] = filepath.Join(dir, filepath.Base(args[i]))
						}
					}
					cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
					cmd.Env = append(os.Environ(), env)
					text, err := cmd.CombinedOutput()
					if err != nil {
						t.Errorf("%q with %q: %v\n%s", args, env, err, text)
					}
					return string(text)
				}
				want := run("LD_PRELOAD=")
				if got := run("LD_PRELOAD=" + library); got != want || strings.Contains(got, "-") {
					t.Errorf("%q: with the library\n%swithout\n%s", args, got, want)
				}
			}
		})
	}
}
