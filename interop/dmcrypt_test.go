package interop

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// dmCryptScript is the /script of a guest in which Linux's dm-crypt and softmkey read what the other has written: plain
// volumes with each size of a sector, whose tweaks count in either way, and volumes of LUKS1 and LUKS2.
const dmCryptScript = `
export DM_DISABLE_UDEV=1
mkdir -p /run/cryptsetup /dev/mapper
head -c 64 /dev/urandom >/tmp/key
chmod 600 /tmp/key
fresh() { head -c 262144 /dev/urandom >/tmp/data; }
# plain SECTOR STEP FLAGS...: the data begins at 1 MiB.
plain() {
	sector=$1 step=$2
	shift 2
	open() { cryptsetup open --type plain --cipher aes-xts-plain64 --key-size 512 --key-file /tmp/key --sector-size $sector --offset 2048 "$@" /dev/ram0 c; }
	flags="--dek /tmp/key --unit $sector --tweak-step $step"
	fresh
	open "$@" && dd if=/tmp/data of=/dev/mapper/c bs=65536 oflag=direct && cryptsetup close c || return
	softmkey tx --crypto decrypt $flags --offset 1M --length 256K /dev/ram0 - | cmp - /tmp/data || return
	fresh
	softmkey tx --crypto encrypt $flags /tmp/data - | dd of=/dev/ram0 bs=65536 seek=16 iflag=fullblock && sync || return
	open "$@" && dd if=/dev/mapper/c of=/tmp/back bs=65536 count=4 iflag=direct && cryptsetup close c && cmp /tmp/data /tmp/back
}
# luks FLAGS...
luks() {
	cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --volume-key-file /tmp/key --key-size 512 --cipher aes-xts-plain64 --key-file /tmp/key "$@" /dev/ram1 || return
	fresh
	cryptsetup open --key-file /tmp/key /dev/ram1 c && dd if=/tmp/data of=/dev/mapper/c bs=65536 oflag=direct && cryptsetup close c || return
	softmkey tx --crypto decrypt --luks --dek /tmp/key /dev/ram1 - | head -c 262144 | cmp - /tmp/data
}
for s in 512 1024 2048 4096; do
	step plain-$s plain $s $((s / 512))
	[ $s = 512 ] || step plain-$s-large plain $s 1 --iv-large-sectors
done
step luks1 luks --type luks1
for s in 512 4096; do
	step luks2-$s luks --type luks2 --sector-size $s --luks2-metadata-size 16k --luks2-keyslots-size 512k
done
`

// TestDMCrypt holds the volumes of tx against those of the kernel of a guest.
func TestDMCrypt(t *testing.T) {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	softmkey, _ := preparePCI(t)
	p := guest.PCI{
		Script: dmCryptScript, Modules: []string{"dm_crypt", "aes_generic?", "ecb?", "xts", "algif_skcipher", "brd"}, Programs: []string{"cryptsetup", softmkey},
	}
	onKernels(t, p, pciKernels(t), func(t *testing.T, softmkey, dir string, image guest.Image) {
		g := startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.99.0.1 pci.peer=10.99.0.1", image)
		g.done("plain-512", "plain-1024", "plain-1024-large", "plain-2048", "plain-2048-large", "plain-4096", "plain-4096-large", "luks1", "luks2-512", "luks2-4096")
	})

}
