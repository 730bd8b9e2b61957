package interop

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// TestNVMeMetadata holds the files of protect and verify --metadata against NVMe namespaces of QEMU with separate
// metadata, which are images with the data first and the metadata behind it, Linux's driver, which signs and checks
// every block, and nvme-cli, which reads and writes data and metadata as two files. The driver and nvme-cli read what
// softmkey wrote, and softmkey reads what the driver and nvme-cli wrote.
func TestNVMeMetadata(t *testing.T) {
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	dir := t.TempDir()
	softmkey := filepath.Join(dir, "softmkey")
	mustRun(t, "..", "go", "build", "-o", softmkey, "./cmd/softmkey")
	image, err := guest.BuildNVMe("../.cache/interop/kernel", dir)
	check(t, err)
	const length = 1 << 20
	namespaces := []struct {
		sig           string
		block, tuple  int
		device, guard string
	}{
		{"nvme16:512", 512, 8, "ms=8,pi=1", "T10-DIF-TYPE1-CRC"},
		{"nvme16:4096", 4096, 8, "ms=8,pi=1", "T10-DIF-TYPE1-CRC"},
		{"nvme64:4096", 4096, 16, "ms=16,pi=1,pif=2", "EXT-DIF-TYPE1-CRC64"},
	}
	args := []string{"-device", "nvme,id=n,serial=1"}
	var datas, allFields [][]byte
	for i, ns := range namespaces {
		data, fields := fmt.Sprintf("data%d", i), fmt.Sprintf("fields%d", i)
		mustRun(t, dir, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >%s", length, data))
		mustRun(t, dir, softmkey, "protect", "-q", "--sig", ns.sig, "--metadata", fields, data)
		b, err := os.ReadFile(filepath.Join(dir, data))
		check(t, err)
		f, err := os.ReadFile(filepath.Join(dir, fields))
		check(t, err)
		datas, allFields = append(datas, b), append(allFields, f)
		name := filepath.Join(dir, fmt.Sprintf("ns%d", i))
		damaged := append(append([]byte(nil), b...), f...)
		damaged[len(damaged)-ns.tuple] ^= 1 // the guard of the last block
		check(t, os.WriteFile(name, damaged, 0o666))
		args = append(args, "-drive", fmt.Sprintf("file=%s,if=none,id=d%d,format=raw", name, i),
			"-device", fmt.Sprintf("nvme-ns,bus=n,drive=d%d,nsid=%d,logical_block_size=%d,physical_block_size=%[3]d,mset=0,%s", i, i+1, ns.block, ns.device))
	}
	said := runGuest(t, image, "nvme", args...)
	for i, ns := range namespaces {
		said.match(fmt.Sprintf("%d: %s, .* reads 1", i+1, ns.guard))
		good := len(datas[i]) - 65536 // reads of 64 KiB, the last of which fails
		said.match(fmt.Sprintf("%d: read %x .*", i+1, sha256.Sum256(datas[i][:good])))
		said.match(fmt.Sprintf("%d: last: .*(Invalid or incomplete multibyte or wide character|rror)", i+1)) // EILSEQ, a protection error
		// nvme-cli's files are parts of protect's; after it has written them, they are on the medium again.
		first, end := 8, 16
		blocks, tuples := datas[i][first*ns.block:end*ns.block], allFields[i][first*ns.tuple:end*ns.tuple]
		said.match(fmt.Sprintf("%d: nvme-cli: data %x .*", i+1, sha256.Sum256(blocks)))
		said.match(fmt.Sprintf("%d: nvme-cli: fields %x .*", i+1, sha256.Sum256(tuples)))
		said.match(fmt.Sprintf("%d: nvme-cli: other tags: .*Invalid Protection Information.*", i+1))
		wrote := said.match(fmt.Sprintf("%d: wrote ([0-9a-f]+) .*", i+1))
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("ns%d", i)))
		check(t, err)
		if len(b) != length+length/ns.block*ns.tuple {
			t.Fatalf("%s: the image has %d bytes", ns.sig, len(b))
		}
		if fresh := fmt.Sprintf("%x", sha256.Sum256(b[65536:][:131072])); fresh != wrote {
			t.Errorf("%s: the image has %s, the guest wrote %s", ns.sig, fresh, wrote)
		}
		if !bytes.Equal(b[first*ns.block:end*ns.block], blocks) || !bytes.Equal(b[length+first*ns.tuple:length+end*ns.tuple], tuples) {
			t.Errorf("%s: blocks that nvme-cli wrote are others", ns.sig)
		}
		b[len(b)-ns.tuple] ^= 1
		for name, part := range map[string][]byte{"data": b[:length], "fields": b[length:]} {
			check(t, os.WriteFile(filepath.Join(dir, name), part, 0o666))
		}
		if got, want := mustRun(t, dir, softmkey, "verify", "--sig", ns.sig, "--metadata", "fields", "data"), fmt.Sprintf("data: %d blocks, 0 bad\n", length/ns.block); got != want {
			t.Errorf("%s: %s", ns.sig, got)
		}
	}
	said.match("done")
	said.end()
}
