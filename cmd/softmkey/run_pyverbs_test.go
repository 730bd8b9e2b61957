//go:build linux && (amd64 || arm64)

package main

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/xts"
)

// pyverbsSource is where Debian's python3-pyverbs and rdma-core leave the tests.
const pyverbsSource = "/usr/share/doc/rdma-core/tests"

// counts are the results of one file of pyverbs' tests.
type counts struct{ ok, skipped, failed int }

func (c counts) String() string {
	return fmt.Sprintf("%d ok, %d skipped, %d failed", c.ok, c.skipped, c.failed)
}

// pyverbsTests are the files of Debian 12's tests (rdma-core 44) that run here, with the
// results that each must have. The skipped tests are:
//   - test_mlx5_dc: 3 tests of streams of a DCI, and one of an address handle that is mapped to a QP;
//   - test_mr: 10 tests of dma-buf regions;
//   - test_qp: 5 tests of raw packet QPs;
//   - test_qpex: the atomic write, which rdma-core's mlx5 provider lacks.
var pyverbsTests = map[string]counts{
	"test_addr":            {ok: 3},
	"test_atomic":          {ok: 9},
	"test_cq":              {ok: 4},
	"test_cq_events":       {ok: 2},
	"test_cqex":            {ok: 5},
	"test_device":          {ok: 22},
	"test_mlx5_dc":         {ok: 3, skipped: 4},
	"test_mlx5_devx":       {ok: 1},
	"test_mlx5_mkey":       {ok: 11},
	"test_mlx5_dma_memcpy": {ok: 4},
	"test_mr":              {ok: 17, skipped: 10},
	"test_pd":              {ok: 4},
	"test_qp":              {ok: 21, skipped: 5},
	"test_qpex":            {ok: 19, skipped: 1},
	"test_rdmacm":          {ok: 10},
}

// TestRunPyverbs runs Debian's tests of libibverbs and libmlx5.
func TestRunPyverbs(t *testing.T) {
	program, dir := builtProgram(t), pyverbs(t)
	var names []string
	for name := range pyverbsTests {
		names = append(names, name)
	}
	got, out := runPyverbs(t, program, dir, nil, names...)
	comparePyverbs(t, got, out, pyverbsTests)
}

// TestRunPyverbsCrypto runs Debian's tests of encrypting keys in both import modes. In each
// mode the tests skip those of the other mode. They compare ciphertext only if the file of
// cryptoInfo contains it, and then with keys of 128 bits; a changed copy uses 256 bits.
func TestRunPyverbsCrypto(t *testing.T) {
	program, dir := builtProgram(t), pyverbs(t)
	kek, credential, flags := cryptoOfficer(t)
	for _, bits := range []int{128, 256} {
		t.Run(fmt.Sprintf("%d bits", bits), func(t *testing.T) {
			info := filepath.Join(t.TempDir(), "crypto.json")
			writeFile(t, info, cryptoInfo(t, kek, credential, bits), 0o600)
			t.Setenv("MLX5_CRYPTO_TEST_INFO", info)
			if bits == 256 {
				replaceIn(t, filepath.Join(dir, "tests", "test_mlx5_crypto.py"), "self.key_size = dve.MLX5DV_CRYPTO_KEY_SIZE_128", "self.key_size = dve.MLX5DV_CRYPTO_KEY_SIZE_256")
			}
			pyverbsCrypto(t, program, dir, flags)
		})
	}
}

// replaceIn replaces a text of a file, which must be there once.
func replaceIn(t *testing.T, file, old, new string) {
	t.Helper()
	b := readFile(t, file)
	if n := strings.Count(string(b), old); n != 1 {
		t.Fatalf("%s has %q %d times", file, old, n)
	}
	writeFile(t, file, []byte(strings.Replace(string(b), old, new, 1)), 0o600)
}

// pyverbsCrypto runs the tests of encrypting keys on a device in either import mode.
func pyverbsCrypto(t *testing.T, program, dir string, flags []string) {
	for _, mode := range []struct {
		flags []string
		want  counts
	}{
		{[]string{"--crypto", "plaintext"}, counts{ok: 2, skipped: 5}},
		{flags, counts{ok: 5, skipped: 2}},
	} {
		t.Run(mode.flags[1], func(t *testing.T) {
			got, out := runPyverbs(t, program, dir, mode.flags, "test_mlx5_crypto")
			comparePyverbs(t, got, out, map[string]counts{"test_mlx5_crypto": mode.want})
		})
	}
}

// cryptoOfficer makes a KEK and a credential, and the flags of a device that has
// them.
func cryptoOfficer(t *testing.T) (kek, credential []byte, flags []string) {
	t.Helper()
	dir := t.TempDir()
	kek, credential = sequence(100, 16), sequence(0, 40)
	for name, secret := range map[string][]byte{"kek.key": kek, "credential.key": credential} {
		writeFile(t, filepath.Join(dir, name), secret, 0o600)
	}
	return kek, credential, []string{"--crypto", "wrapped", "--kek", filepath.Join(dir, "kek.key"), "--credential", filepath.Join(dir, "credential.key")}
}

// cryptoInfo returns the file that the environment variable
// MLX5_CRYPTO_TEST_INFO names: keys, wrapped and plain, and the ciphertext under the key
// of a size of data units of 512 bytes 'c' from number 0 on.
func cryptoInfo(t *testing.T, kek, credential []byte, bits int) []byte {
	t.Helper()
	key128, key256 := sequence(1, 32), sequence(1, 64)
	wrap := func(key []byte) []uint64 {
		wrapped, err := dek.Wrap(kek, key)
		fatal.If(t, err)
		return words(wrapped)
	}
	encrypt := func(size int) []uint64 {
		cipher, err := xts.New(map[int][]byte{128: key128, 256: key256}[bits])
		fatal.If(t, err)
		defer cipher.Close()
		data := []byte(strings.Repeat("c", size))
		cipher.Encrypt(data, data, 512, xts.Tweak{})
		return words(data)
	}
	plain := func(key []byte) (native []uint32) {
		for ; len(key) > 0; key = key[4:] {
			native = append(native, binary.NativeEndian.Uint32(key))
		}
		return native
	}
	text, err := json.Marshal([]map[string]any{{
		"credential":                wrap(credential),
		"wrapped_key":               wrap(key128),
		"wrapped_256_bits_key":      wrap(key256),
		"plaintext_key":             plain(key128),
		"plaintext_256_bits_key":    plain(key256),
		"encrypted_data_for_512_c":  encrypt(512),
		"encrypted_data_for_1024_c": encrypt(1024),
	}})
	fatal.If(t, err)
	return text
}

// sequence returns n bytes that count from first on.
func sequence(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

// words returns the big-endian words of b.
func words(b []byte) (w []uint64) {
	for ; len(b) > 0; b = b[8:] {
		w = append(w, binary.BigEndian.Uint64(b))
	}
	return w
}

// pyverbs unpacks the tests of pyverbs into a folder.
func pyverbs(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("/usr/bin/python3", "-c", "import pyverbs.providers.mlx5.mlx5dv").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: python3-pyverbs: %v: %s", err, out)
	}
	files, err := os.ReadDir(pyverbsSource)
	if err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	dir := t.TempDir()
	fatal.If(t, os.Mkdir(filepath.Join(dir, "tests"), 0o700))
	for _, f := range files {
		in, err := os.Open(filepath.Join(pyverbsSource, f.Name()))
		fatal.If(t, err)
		defer in.Close()
		name, packed := strings.CutSuffix(f.Name(), ".gz")
		var text io.Reader = in
		if packed {
			if text, err = gzip.NewReader(in); err != nil {
				t.Fatal(err)
			}
		}
		out, err := os.Create(filepath.Join(dir, "tests", name))
		fatal.If(t, err)
		if _, err := io.Copy(out, text); err != nil {
			t.Fatal(err)
		}
		fatal.If(t, out.Close())
	}
	return dir
}

var (
	pyverbsTest   = regexp.MustCompile(`(?m)^test_\w+ \(tests\.(\w+)\.`)
	pyverbsResult = regexp.MustCompile(`\.\.\. (ok|skipped|FAIL|ERROR)`)
)

// runPyverbs runs files of pyverbs' tests and counts the results of each.
func runPyverbs(t *testing.T, program, dir string, flags []string, names ...string) (map[string]counts, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := append(append([]string{"run"}, wireFlags()...), flags...)
	args = append(args, "--", "/usr/bin/python3", "-W", "ignore", "tests/run_tests.py", "-v", "--dev", "mlx5_0", "--gid", "3")
	for _, name := range names {
		args = append(args, "-k", "tests."+name+".")
	}
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = dir
	c.WaitDelay = 5 * time.Second
	raw, err := c.CombinedOutput() // the exit status also says that a test failed, as the counts do
	out := string(raw)
	if ctx.Err() != nil {
		t.Fatalf("pyverbs does not end: %v\n%s", err, out)
	}
	results := map[string]counts{}
	for at := pyverbsTest.FindAllStringSubmatchIndex(out, -1); len(at) > 0; at = at[1:] {
		end := len(out)
		if len(at) > 1 {
			end = at[1][0]
		}
		name := out[at[0][2]:at[0][3]]
		result := pyverbsResult.FindStringSubmatch(out[at[0][0]:end])
		n := results[name]
		switch {
		case result == nil:
			continue // the heading of a failure
		case result[1] == "ok":
			n.ok++
		case result[1] == "skipped":
			n.skipped++
		default:
			n.failed++
		}
		results[name] = n
	}
	return results, out
}

// comparePyverbs compares results with the wanted ones. All tests must have run, none may
// fail, and no more of them may be skipped than wanted.
func comparePyverbs(t *testing.T, got map[string]counts, out string, want map[string]counts) {
	t.Helper()
	bad := false
	for name, w := range want {
		if g := got[name]; g.failed != w.failed || g.skipped > w.skipped || g.ok+g.skipped != w.ok+w.skipped {
			t.Errorf("%s: %v, want %v", name, g, w)
			bad = true
		}
	}
	if bad {
		t.Log(out)
	}
}

// TestRunPerftest runs perftest's programs, a server and a client in one run.
func TestRunPerftest(t *testing.T) {
	program := builtProgram(t)
	for i, test := range []struct{ name, flags string }{
		{"ib_write_bw", "-c RC"}, {"ib_read_bw", ""}, {"ib_atomic_bw", ""},
		{"ib_send_bw", "-c RC"}, {"ib_send_bw", "-c UC"}, {"ib_send_bw", "-c UD"},
	} {
		t.Run(test.name+test.flags, func(t *testing.T) {
			need(t, test.name)
			out := runUnder(t, program, pair(fmt.Sprintf("%s %s -F -x 3 -n 200 -p %d", test.name, test.flags, 19880+i)))
			if strings.Count(out, " 200 ") < 2 { // both sides print the number of iterations
				t.Errorf("%s %s: %s", test.name, test.flags, out)
			}
		})
	}
}

// pair returns a shell command that runs a program as a server and again as its client.
func pair(command string) string { return serve(command, command+" $ADDR") }

// serve returns a shell command that starts a server and then its client. The client is
// started again until the server listens.
func serve(server, client string) string {
	return fmt.Sprintf(`%s & server=$!
tries=0
until %s 2>/dev/null; do
	tries=$((tries+1)); [ $tries -lt 100 ] || { kill $server; exit 1; }
	sleep 0.05
done
wait $server`, server, client)
}
