//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// needAssist skips the test if there is no library.
func needAssist(t *testing.T) {
	t.Helper()
	if library() == "" {
		t.Skip("NOT RUN: libsoftmkey-run.so was not built: there is no C compiler (cc)")
	}
}

// helperTurns returns how often the helpers of this process's devices were given a processor.
func helperTurns(t *testing.T) (turns int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/comm")
	fatal.If(t, err)
	for _, path := range tasks {
		name, _ := os.ReadFile(path)
		if !strings.HasPrefix(string(name), "softmkey-cpu") {
			continue
		}
		var ran, waited, n int
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "schedstat"))
		if _, err := fmt.Sscan(string(text), &ran, &waited, &n); err == nil {
			turns += n
		}
	}
	return turns
}

// Programs that spin wake the helpers of the device, unless the user does not want it. The
// results are the same.
func TestRunAssist(t *testing.T) {
	needAssist(t)
	need(t, "ibv_rc_pingpong")
	const rounds = 2000
	for _, c := range []struct {
		flags  []string
		helped bool
	}{{nil, true}, {[]string{"--no-assist"}, false}} {
		l := newLab(t, c.flags...)
		before := helperTurns(t) // of a run before, whose thread may be the process's first one, which stays
		l.must(fmt.Sprintf("ibv_rc_pingpong -g 3 -n %d -c >/dev/null & sleep 0.3; ibv_rc_pingpong -g 3 -n %[1]d -c 127.0.0.1 && wait $!", rounds))
		turns := helperTurns(t) - before
		l.end()
		if inside := len(wireFlags()) == 0; (turns > rounds/20) != (c.helped && inside) {
			t.Errorf("flags %v: the helpers ran %d times for %d rounds", c.flags, turns, rounds)
		}
	}
}

// The libraries of the user's LD_PRELOAD come before libsoftmkey-run.so, and are loaded with --no-assist, too. His
// ASAN_OPTIONS stay.
func TestRunPreload(t *testing.T) {
	needAssist(t)
	t.Setenv("LD_PRELOAD", "/nonexistent/first.so")
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0")
	for _, c := range []struct {
		want  string
		flags []string
	}{
		{"/nonexistent/first.so " + library() + "\ndetect_leaks=0:verify_asan_link_order=0\n", nil},
		{"/nonexistent/first.so\ndetect_leaks=0\n", []string{"--no-assist"}},
	} {
		if out := printed(t, "echo $LD_PRELOAD; echo $ASAN_OPTIONS", c.flags...); !strings.Contains(out, c.want) {
			t.Errorf("flags %v: the program has %q, want %q", c.flags, out, c.want)
		}
	}
}

// printed executes a shell command under softmkey run with the flags, and returns its output.
func printed(t *testing.T, line string, flags ...string) string {
	t.Helper()
	l := newLab(t, flags...)
	out := l.must(line)
	l.end()
	return out
}

// assisted executes the C program with that name with libsoftmkey-run.so and without it (--no-assist). with and without
// are the outputs that it must have.
func assisted(t *testing.T, program, with, without string) {
	t.Helper()
	needAssist(t)
	line := buildC(t, program, "../sleeps/"+program+".c")
	for want, flags := range map[string][]string{with: nil, without: {"--no-assist"}} {
		out := printed(t, line, flags...)
		if helped := len(wireFlags()) == 0; helped && strings.TrimSpace(out) != want {
			t.Errorf("flags %v: %q, want %q", flags, out, want)
		}
	}
}

// The library puts queues and doorbell records of a program into memory that the device has mapped.
func TestRunSharedRecords(t *testing.T) {
	assisted(t, "records", "7 of 7 shared", "0 of 7 shared")
}

// A program that polls in vain sleeps once others have had its processor several times, and spins without the library.
func TestRunSleeps(t *testing.T) { assisted(t, "sleeps", "it sleeps", "it does not sleep") }

// Programs with sanitizers, programs without a dynamic linker, and programs that use no verbs start with the
// library as without it.
func TestRunPreloadedPrograms(t *testing.T) {
	needAssist(t)
	dir, program := t.TempDir(), builtProgram(t)
	hello := filepath.Join(dir, "hello.c")
	writeFile(t, hello, []byte("#include <stdio.h>\nint main(void) { puts(\"ok: hello\"); return 0; }\n"), 0o666)
	examples, err := filepath.Abs("../../examples/c")
	fatal.If(t, err)
	verbs := []string{filepath.Join(examples, "objects.c"), filepath.Join(examples, "pair.c"), "-libverbs", "-lmlx5"}
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"plain", []string{hello}},
		{"static", []string{"-static", hello}},
		{"address sanitizer", append([]string{"-fsanitize=address"}, verbs...)},
		{"thread sanitizer", append([]string{"-fsanitize=thread"}, verbs...)},
		{"undefined behaviour", append([]string{"-fsanitize=undefined"}, verbs...)},
		{"all symbols bound at the start", append([]string{"-Wl,-z,now"}, verbs...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "program")
			compile(t, "libc6-dev, libibverbs-dev", "gcc", append([]string{"-O1", "-o", file}, c.flags...)...)
			run := exec.Command(program, "run", "--", file)
			run.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
			out, err := run.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "ok: ") || strings.Contains(string(out), "ld.so") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
