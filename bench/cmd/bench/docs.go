package main

import (
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/bench/openssl"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

//go:embed benchmarks.md.tmpl
var page string

// headings stand above the groups' tables.
var headings = map[string]string{
	"sig": `Signatures

One core, 64 KiB of data in cache a call, GB/s of data. The peer of T10-DIF is the loop of a storage stack's DIF library, SPDK's, over ISA-L: one
CRC call for each block, then its field. That loop is leaner than the library, which was 4 to 22 % slower than it when both were
timed side by side (SPDK 3230130, blocks of 4096 and 512 bytes). The peer of a CRC is one call of ISA-L for each block and nothing else: it compares and writes no field.
ISA-L 2.30 has no CRC64 with NVMe's polynomial; the call that is timed is its crc64_ecma_refl, the same code with other constants. Results are
compared with ISA-L's, with minio/crc64nvme's for CRC64 and with gVisor's for the IP checksum (CSUM).`,
	"xts": `AES-XTS

One core, 64 KiB in cache a call, from one buffer to another, one tweak for each data unit. The peer is OpenSSL's EVP interface with one call for each unit. The
limit is a loop of AES's round instructions, without data or tweaks.`,
	"mkey": `Memory keys

64 KiB of data through a memory key, opened for each message: rows A to J of mlx5dv_wr_set_mkey_crypto(3) with T10-DIF on blocks of 512 bytes and
AES-XTS-256, on units of 520 bytes where fields are encrypted. The limit of rows C and H is the slower of their two steps alone, by packages sig
and xts on memory in one piece.`,
	"files": `Files

1 GiB in page cache, by processes, opening and closing included. The peer is cp.`,
	"wire": `The wire

RDMA WRITE, READ and SEND between two processes over loopback: one queue pair, path MTU 4096, real RoCEv2 packets, 4 MiB on their way; GB/s of
data. Keys on both sides sign and check, or encrypt and decrypt; their peer is the same without keys. Bare UDP is datagrams as large as those of a
message, with GSO and GRO and nothing else. Each of the two processes uses half of the processors; bare UDP, whose ends are in one process, all. A ping-pong is told as half of a round trip, both ends looking for messages without sleeping; bare
UDP's is with blocking system calls. Memory of queue pairs is heap and stacks of both ends.`,
}

// versions names the peers.
func versions() []string {
	v := []string{"ISA-L " + isal.Version(), openssl.Version()}
	for _, command := range [][]string{{"cp", "--version"}, {"iperf3", "--version"}} {
		if out, err := exec.Command(command[0], command[1:]...).Output(); err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			v = append(v, line)
		}
	}
	return v
}

// write writes the table as Markdown and JSON, and the plot.
func write(dir string, r *bench.Report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "benchmarks.json"), append(text, '\n'), 0o666); err != nil {
		return err
	}
	var tables strings.Builder
	if err := r.Markdown(&tables, headings); err != nil {
		return err
	}
	targets, reached := r.Count()
	if err := create(filepath.Join(dir, "benchmarks.md"), func(f *os.File) error {
		return template.Must(template.New("").Parse(page)).Execute(f, map[string]any{
			"Report": r, "Tables": tables.String(), "Targets": targets, "Reached": reached,
		})
	}); err != nil {
		return err
	}
	const caption = "Times the speed of the peer. Red marks are targets, yellow bars miss one."
	return create(filepath.Join(dir, "benchmarks.svg"), func(f *os.File) error { return r.Plot(f, caption) })
}

// create makes a file with what fill writes.
func create(name string, fill func(*os.File) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = fill(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
