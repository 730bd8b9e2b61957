// Package luks reads the headers of encrypted volumes: those of LUKS1 (LUKS On-Disk Format Specification 1.2.3) and of
// LUKS2 (LUKS2 On-Disk Format Specification 1.1.0). It tells where the data is and how it is encrypted, and whether a
// volume key is the right one. It does not unlock key slots.
package luks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"strings"
)

// Volume describes the encrypted data of a volume, as its header does.
type Volume struct {
	Version int   // 1 or 2
	Offset  int64 // of the data, in bytes
	Length  int64 // of the data; -1: to the end of the device
	Sector  int   // bytes of a data unit
	Step    int   // difference between the tweaks of two data units
	Tweak   uint64
	KeySize int // bytes of the volume key
	digests []digest
	refused error // of a sound header of LUKS2: why softmkey does not read the volume
}

// refusal is the error for a sound header of a volume that softmkey does not read.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// digest is the proof of a volume key: PBKDF2 of it.
type digest struct {
	hash       func() hash.Hash
	salt       []byte
	iterations int
	value      []byte
}

// ErrNoHeader is the error for a device that does not begin with a header of LUKS.
var ErrNoHeader = errors.New("no header of LUKS1 or LUKS2")

var errNotObject = errors.New("the JSON area is not an object with zeros behind it")

// The bounds of what is read and computed for a header that anybody may have written.
const (
	mostHeader     = 4 << 20   // bytes of a header of LUKS2 (section 2.1)
	mostSlots      = 128 << 20 // bytes of the areas of LUKS2's key slots, as cryptsetup has
	mostIterations = 10_000_000
	mostDigests    = 8 // as cryptsetup has (LUKS2_DIGEST_MAX)
	sector         = 512
)

var hashes = map[string]func() hash.Hash{"sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}

var (
	magic1 = []byte("LUKS\xba\xbe\x00\x01")
	magic2 = []byte("LUKS\xba\xbe\x00\x02")
	second = []byte("SKUL\xba\xbe\x00\x02")
)

// Read reads the header at the beginning of a device. Its errors name what is wrong in the header.
func Read(r io.ReaderAt) (*Volume, error) {
	head := make([]byte, 4096)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	head = head[:n]
	if bytes.HasPrefix(head, magic1) {
		return read1(head)
	}
	return read2(r, head)
}

// text returns a field of characters, which ends at its first zero.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

func read1(b []byte) (*Volume, error) {
	const size, stripes = 592, 4000
	if len(b) < size {
		return nil, fmt.Errorf("the header of LUKS1 has %d bytes, and this device %d", size, len(b))
	}
	be := binary.BigEndian
	v := &Volume{Version: 1, Offset: int64(be.Uint32(b[104:])) * sector, Length: -1, Sector: sector, Step: 1, KeySize: int(be.Uint32(b[108:]))}
	if err := cipher(text(b[8:40]) + "-" + text(b[40:72])); err != nil {
		return nil, err
	}
	if err := v.addDigest(text(b[72:104]), b[132:164], int(be.Uint32(b[164:])), b[112:132]); err != nil {
		return nil, err
	}
	var areas []span
	for i := range 8 {
		slot := b[208+48*i:][:48] // state, iterations, salt, offset of the key material in sectors, and its stripes
		if n := be.Uint32(slot[44:]); n != stripes {
			return nil, fmt.Errorf("a key slot of %d stripes: must have %d", n, stripes)
		}
		areas = append(areas, span{uint64(be.Uint32(slot[40:])) * sector, (uint64(v.KeySize)*stripes + sector - 1) / sector * sector})
	}
	end := uint64(v.Offset)
	if end == 0 {
		end = math.MaxInt64
	}
	if err := apart(areas, size, end); err != nil {
		return nil, err
	}
	return v, v.check()
}

// cipher refuses all encryptions but AES-XTS whose tweaks are numbers of 64 bits. Those of aes-xts-plain begin anew
// after 2^32 sectors.
func cipher(name string) error {
	if name != "aes-xts-plain64" {
		return refuse("cipher %q: softmkey has aes-xts-plain64", name)
	}
	return nil
}

func (v *Volume) addDigest(name string, salt []byte, iterations int, value []byte) error {
	h := hashes[name]
	switch {
	case h == nil:
		return fmt.Errorf("hash %q of the key's digest: softmkey has sha1 and SHA-2", name)
	case iterations <= 0 || iterations > mostIterations:
		return fmt.Errorf("%d iterations of the key's digest: must be 1 to %d", iterations, mostIterations)
	}
	v.digests = append(v.digests, digest{h, salt, iterations, value})
	return nil
}

// Detached returns an error if the data of the volume cannot be behind its header.
func (v *Volume) Detached() error {
	if v.Offset == 0 {
		return errors.New("the data begins at byte 0: it is a detached header, whose data is on another device")
	}
	return nil
}

func (v *Volume) check() error {
	switch {
	case v.refused != nil:
		return v.refused
	case v.KeySize != 32 && v.KeySize != 64:
		return fmt.Errorf("a volume key of %d bytes: AES-XTS has keys of 32 and 64 bytes", v.KeySize)
	case v.Offset < 0 || v.Length < -1:
		return fmt.Errorf("the data begins at %d and has %d bytes", v.Offset, v.Length)
	case !slices.Contains([]int{512, 1024, 2048, 4096}, v.Sector):
		return fmt.Errorf("sectors of %d bytes: LUKS has 512, 1024, 2048 and 4096", v.Sector)
	}
	return nil
}

// read2 reads the first header or the second one, as cryptsetup does: if both are sound, that with the higher sequence
// number. The first header says where the second one is; without it, all places that the format has are tried.
func read2(r io.ReaderAt, head []byte) (*Volume, error) {
	none := !bytes.HasPrefix(head, magic2)
	first, sequence, size, err := readHeader(r, 0, magic2)
	places := []int64{size}
	if size == 0 {
		places = nil
		for at := int64(16 << 10); at <= mostHeader; at *= 2 {
			places = append(places, at)
		}
	}
	for _, at := range places {
		v, other, _, wrong := readHeader(r, at, second)
		if wrong != nil {
			continue
		}
		if err != nil || other > sequence {
			return v, v.check()
		}
	}
	switch {
	case err == nil:
		return first, first.check()
	case none:
		return nil, ErrNoHeader
	case size > 0: // its checksum is right
		return nil, err
	}
	return nil, fmt.Errorf("%w; there is no sound second header", err)
}

// readHeader reads one of the two headers of LUKS2 (chapter 2). size is its length if its checksum is right.
func readHeader(r io.ReaderAt, at int64, magic []byte) (v *Volume, sequence uint64, size int64, err error) {
	b := make([]byte, 4096)
	if err := readFull(r, b, at); err != nil {
		return nil, 0, 0, fmt.Errorf("the header of LUKS2: %w", err)
	}
	be := binary.BigEndian
	n := be.Uint64(b[8:])
	switch {
	case !bytes.HasPrefix(b, magic):
		return nil, 0, 0, ErrNoHeader
	case n < 16<<10 || n > mostHeader || n&(n-1) != 0 || at != 0 && n != uint64(at):
		return nil, 0, 0, fmt.Errorf("a header of %d bytes: LUKS2 has 16 KiB, doubled up to 4 MiB", n)
	case be.Uint64(b[0x100:]) != uint64(at):
		return nil, 0, 0, fmt.Errorf("a header at byte %d that says it is at byte %d", at, be.Uint64(b[0x100:]))
	}
	all := make([]byte, n)
	if err := readFull(r, all, at); err != nil {
		return nil, 0, 0, fmt.Errorf("the header of %d bytes: %w", n, err)
	}
	sum := all[0x1c0:0x200]
	want := bytes.Clone(sum)
	clear(sum)
	h := hashes[text(b[0x48:0x68])]
	if h == nil {
		return nil, 0, 0, fmt.Errorf("checksum %q of the header: softmkey has sha1 and SHA-2", text(b[0x48:0x68]))
	}
	s := h()
	s.Write(all)
	if got := s.Sum(nil); !bytes.Equal(got, want[:len(got)]) {
		return nil, 0, 0, errors.New("the checksum of the header is wrong")
	}
	v, err = readJSON(all[4096:])
	if _, sound := err.(refusal); sound {
		v, err = &Volume{refused: err}, nil
	}
	if err != nil {
		return nil, 0, int64(n), err
	}
	return v, be.Uint64(b[16:]), int64(n), nil
}

func readFull(r io.ReaderAt, b []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, at, int64(len(b))), b)
	return err
}

// readJSON reads the JSON area: one object, and zeros to the end of the area.
func readJSON(area []byte) (*Volume, error) {
	end := bytes.IndexByte(area, 0)
	if end < 0 || area[0] != '{' || len(bytes.Trim(area[end:], "\x00")) > 0 {
		return nil, errNotObject
	}
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(area[:end]))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		return nil, fmt.Errorf("the JSON area: %w", err)
	}
	if d.InputOffset() != int64(end) {
		return nil, errNotObject
	}
	var wrong error
	v, err := volume(object{"", members, &wrong}, uint64(len(area)))
	return v, cmp.Or(wrong, err)
}

// volume returns what the JSON area of a size (chapter 3) says. It refuses what cryptsetup refuses.
func volume(all object, size uint64) (*Volume, error) {
	config, slots, segments, digests := all.object("config"), all.object("keyslots"), all.object("segments"), all.object("digests")
	if _, ok := config.members["requirements"]; ok {
		if need := config.object("requirements").optional("mandatory"); len(need) > 0 {
			return nil, refuse("the volume requires %s", strings.Join(need, ", "))
		}
	}
	config.optional("flags")
	slotsSize := config.size("keyslots_size")
	if slotsSize > mostSlots || slotsSize%4096 != 0 {
		return nil, fmt.Errorf("a key slots area of %d bytes: must be a multiple of 4096, and at most %d", slotsSize, mostSlots)
	}
	if n := config.size("json_size"); n != size {
		return nil, fmt.Errorf("a JSON area of %d bytes in a header that has %d", n, size)
	}
	for _, token := range all.object("tokens").each() {
		token.text("type")
		token.names("keyslots", slots)
	}
	v := &Volume{Version: 2, Length: -1}
	if err := v.segment(segments); err != nil {
		return nil, err
	}
	areas := 2 * (size + 4096)
	if v.Offset != 0 && uint64(v.Offset) < areas+slotsSize {
		return nil, fmt.Errorf("the data begins at byte %d, and the key slots end at %d", v.Offset, areas+slotsSize)
	}
	if err := checkSlots(slots, areas, areas+slotsSize); err != nil {
		return nil, err
	}
	return v, v.digestsOf(digests, slots, segments)
}

// segment reads the encrypted data's place and cipher.
func (v *Volume) segment(segments object) error {
	if len(segments.members) != 1 {
		return refuse("%d segments: softmkey reads volumes with one, of type crypt", len(segments.members))
	}
	g := segments.object("0")
	if kind := g.text("type"); kind != "crypt" {
		return refuse("a segment of type %q: softmkey reads volumes of type crypt", kind)
	}
	if _, ok := g.members["integrity"]; ok {
		return refuse("the volume has integrity (dm-integrity) below the encryption")
	}
	if err := cipher(g.text("encryption")); err != nil {
		return err
	}
	g.optional("flags")
	v.Sector, v.Tweak = g.number("sector_size"), g.size("iv_tweak")
	v.Step = v.Sector / sector // dm-crypt counts tweaks in sectors of 512 bytes
	offset := g.size("offset")
	if offset > math.MaxInt64 || offset%sector != 0 {
		return fmt.Errorf("the data begins at byte %d, which is no sector's", offset)
	}
	v.Offset = int64(offset)
	if g.text("size") != "dynamic" {
		n := g.size("size")
		if n == 0 || n%sector != 0 || n%uint64(max(v.Sector, 1)) != 0 {
			return fmt.Errorf("the data has %d bytes, in sectors of %d", n, v.Sector)
		}
		v.Length = int64(min(n, math.MaxInt64)) // beyond the end of every device
	}
	return nil
}

// kdfs are the members of the functions that derive a key from a passphrase: texts, and numbers.
var kdfs = map[string][2][]string{
	"pbkdf2":   {{"salt", "hash"}, {"iterations"}},
	"argon2i":  {{"salt"}, {"time", "memory", "cpus"}},
	"argon2id": {{"salt"}, {"time", "memory", "cpus"}},
}

// checkSlots checks the key slots, whose areas are between two offsets.
func checkSlots(slots object, begin, end uint64) error {
	var areas []span
	for _, slot := range slots.each() {
		slot.number("key_size")
		area := slot.object("area")
		kind := area.text("type")
		areas = append(areas, span{area.size("offset"), area.size("size")})
		if slot.text("type") != "luks2" {
			continue
		}
		if area.text("encryption"); kind != "raw" {
			return fmt.Errorf("a key slot's area of type %q: must be raw", kind)
		}
		area.number("key_size")
		kdf := slot.object("kdf")
		members := kdfs[kdf.text("type")]
		for _, name := range members[0] {
			kdf.text(name)
		}
		for _, name := range members[1] {
			kdf.number(name)
		}
		af := slot.object("af")
		if kind := af.text("type"); kind != "luks1" {
			return fmt.Errorf("a key slot that is split by %q: must be luks1", kind)
		}
		af.text("hash")
		af.number("stripes")
	}
	return apart(areas, begin, end)
}

// span is an area of a device.
type span struct{ offset, length uint64 }

// apart returns an error if areas overlap, or are not between two offsets.
func apart(areas []span, begin, end uint64) error {
	slices.SortFunc(areas, func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
	for _, a := range areas {
		if a.offset < begin || a.length == 0 || a.offset > end || a.length > end-a.offset {
			return fmt.Errorf("a key slot of %d bytes at byte %d: there is place for it from %d to %d", a.length, a.offset, begin, end)
		}
		begin = a.offset + a.length
	}
	return nil
}

// digestsOf reads the digests of the volume key.
func (v *Volume) digestsOf(digests, slots, segments object) error {
	if len(digests.members) > mostDigests {
		return fmt.Errorf("%d digests of keys: must be at most %d", len(digests.members), mostDigests)
	}
	found := map[string]int{}
	for _, d := range digests.each() {
		keys, of := d.names("keyslots", slots), d.names("segments", segments)
		for _, slot := range keys {
			found[slot]++
		}
		if kind := d.text("type"); !slices.Contains(of, "0") || kind != "pbkdf2" {
			continue
		}
		salt, err1 := base64.StdEncoding.DecodeString(d.text("salt"))
		value, err2 := base64.StdEncoding.DecodeString(d.text("digest"))
		if err := errors.Join(err1, err2); err != nil || len(value) == 0 || len(value) > sha512.Size {
			return fmt.Errorf("the digest of the volume key %q with salt %q", d.text("digest"), d.text("salt"))
		}
		if err := v.addDigest(d.text("hash"), salt, d.number("iterations"), value); err != nil {
			return err
		}
		for _, slot := range keys {
			v.KeySize = cmp.Or(slots.object(slot).number("key_size"), v.KeySize)
		}
	}
	for name, slot := range slots.each() {
		if slot.text("type") == "luks2" && found[name] != 1 {
			return fmt.Errorf("key slot %q has %d digests: must have one", name, found[name])
		}
	}
	if len(v.digests) == 0 {
		return errors.New("no digest of the volume key, by which a wrong key could be told")
	}
	v.KeySize = cmp.Or(v.KeySize, 64) // no slot is left; the digest decides
	return nil
}

// Fits reports whether a key is the volume's. The work ends with the context.
func (v *Volume) Fits(ctx context.Context, key []byte) (bool, error) {
	for _, d := range v.digests {
		got, err := d.of(ctx, key)
		if err != nil {
			return false, err
		}
		if subtle.ConstantTimeCompare(got, d.value) == 1 {
			return true, nil
		}
	}
	return false, nil
}

// of returns PBKDF2 (RFC 8018, section 5.2) of a key. It is not that of crypto/pbkdf2, which nothing can interrupt: a
// header may ask for a minute of work.
func (d *digest) of(ctx context.Context, key []byte) ([]byte, error) {
	mac := hmac.New(d.hash, key)
	var sum []byte
	for block := uint32(1); len(sum) < len(d.value); block++ {
		mac.Reset()
		mac.Write(d.salt)
		mac.Write(binary.BigEndian.AppendUint32(nil, block))
		u := mac.Sum(nil)
		t := bytes.Clone(u)
		for i := 1; i < d.iterations; i++ {
			if i%4096 == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			mac.Reset()
			mac.Write(u)
			u = mac.Sum(u[:0])
			subtle.XORBytes(t, t, u)
		}
		sum = append(sum, t...)
	}
	return sum[:len(d.value)], nil
}
