package image

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// newDEK returns a data encryption key that depends on n.
func newDEK(t *testing.T, n byte) *dek.DEK {
	t.Helper()
	key := bytes.Repeat([]byte{n}, 64)
	copy(key, "the other half of the key")
	d, err := dek.New(key)
	fatal.If(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// rounds returns the number of rounds of a random test.
func rounds(short, long int) int {
	if os.Getenv("SOFTMKEY_LONG") != "" {
		return long
	}
	return short
}

// randomFormat returns a format with some of the parameters that users get wrong.
func randomFormat(r *rand.Rand, ofKey bool) sig.Format {
	for {
		f := sig.Format{Type: sig.Type(1 + r.IntN(7)), BlockSize: []int{512, 520, 4096, 4160, 1024, 64}[r.IntN(6)]}
		if ofKey && (f.Type > sig.CRC64 || f.BlockSize == 1024 || f.BlockSize == 64) {
			continue
		}
		f.Seed = sig.Seed(r.IntN(3))
		if f.Type == sig.T10DIF || f.Type > sig.CRC64 {
			f.AppTag = []uint16{0, 7, 0x5678}[r.IntN(3)]
			f.RefTag = []uint64{0, 1, 2048}[r.IntN(3)]
			f.Flags = []sig.Flags{0, sig.Type3, sig.Plain, sig.IgnoreApp | sig.Type1, sig.IgnoreRef | sig.Type1, sig.IgnoreRef | sig.IgnoreApp | sig.Type1}[r.IntN(6)]
			if f.Flags&sig.IgnoreApp != 0 {
				f.AppTag = 0
			}
		}
		if f.Type == sig.T10DIF {
			f.Guard = sig.Guard(r.IntN(2))
		}
		if f.Type > sig.CRC64 {
			f.Seed = 0
			if r.IntN(2) == 0 {
				f.Metadata, f.FieldFirst = 64, r.IntN(2) == 0
			}
		}
		if f.Validate() == nil {
			return f
		}
	}
}

// randomJob returns the job of an image with one of some keys.
func randomJob(r *rand.Rand, keys []*dek.DEK) mkeyio.StreamJob {
	switch r.IntN(4) {
	case 0: // the fields are encrypted, or cover ciphertext
		f := randomFormat(r, true)
		c := &mkey.Crypto{EncryptOnTX: true, Order: mkey.Order(r.IntN(2)), DataUnitSize: []int{512, 520, 4096}[r.IntN(3)], DEK: keys[r.IntN(len(keys))]}
		if wholeUnits(&f, c) > 130 {
			return randomJob(r, keys)
		}
		return mkeyio.StreamJob{Signature: &mkey.Signature{Wire: &f}, Crypto: c}
	case 1:
		return mkeyio.StreamJob{} // plain data
	default:
		return mkeyio.Protect(randomFormat(r, false))
	}
}

// wholeUnits returns the smallest number of blocks that are whole data units, with fields and without.
func wholeUnits(f *sig.Format, c *mkey.Crypto) int {
	n := 1
	for n*f.Block()%c.DataUnitSize != 0 || n*f.Stride()%c.DataUnitSize != 0 {
		n++
	}
	return n
}

// TestRepairWrongParameters serves random images for repair with random parameters, nearly all of
// them wrong, and lets a client read everything and write parts of bad blocks. No byte of the data may change, as seen with the right parameters.
func TestRepairWrongParameters(t *testing.T) {
	keys := []*dek.DEK{newDEK(t, 1), newDEK(t, 2), newDEK(t, 3)}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	begun, repaired := 0, uint64(0)
	for round := range rounds(30, 1000) {
		right := randomJob(r, keys)
		// Content: random, with runs of zeros and of ones.
		length := 64 * 4160 * (1 + r.IntN(4))
		if c := right.Crypto; c != nil { // whole data units, of the data and of the stream
			n := wholeUnits(right.Signature.Wire, c) * right.Signature.Wire.Block()
			length = n * max(1, length/n)
		}
		data := make([]byte, length)
		for at := 0; at < len(data); {
			n := min(1<<r.IntN(18), len(data)-at)
			switch r.IntN(3) {
			case 0:
				random := rand.NewChaCha8([32]byte{byte(round), byte(round >> 8), byte(at), byte(at >> 8), byte(at >> 16)})
				random.Read(data[at:][:n])
			case 1:
				copy(data[at:], bytes.Repeat([]byte{0xFF}, n))
			}
			at += n
		}
		image := made(t, right, data)
		if f := right.Signature; f != nil && right.Crypto == nil {
			g := f.Wire
			if r.IntN(3) == 0 && (g.Type == sig.T10DIF || g.Type > sig.CRC64) { // unwritten blocks of a formatted drive
				for i := range len(image) / g.Stride() {
					if r.IntN(10) > 0 {
						copy(image[i*g.Stride():], make([]byte, g.Block()))
						copy(image[i*g.Stride()+g.Block():][:g.FieldSize()], bytes.Repeat([]byte{0xFF}, g.FieldSize()))
					}
				}
			}
		}
		wrong := randomJob(r, keys)
		for wrong.Signature == nil {
			wrong = randomJob(r, keys)
		}
		if r.IntN(2) == 0 && right.Signature != nil { // nearly right
			f := *right.Signature.Wire
			switch r.IntN(5) {
			case 0:
				f.RefTag++
			case 1:
				f.AppTag ^= 1
			case 2:
				f.Seed = 1 + f.Seed%2
			case 3:
				f.BlockSize = f.Block() * 2
			}
			if f.Validate() == nil {
				wrong = mkeyio.StreamJob{Signature: &mkey.Signature{Wire: &f}}
			}
			if c := right.Crypto; c != nil {
				d := *c
				if r.IntN(2) == 0 {
					d.DEK = keys[r.IntN(len(keys))]
				} else {
					d.InitialTweak = d.InitialTweak.Add(1)
				}
				wrong.Crypto = &d
			}
		}
		// Some damage, and in some images a part of another format.
		for range r.IntN(4) {
			image[r.IntN(len(image))] ^= 1
		}
		if r.IntN(4) == 0 {
			at := len(image) - r.IntN(len(image)/4)
			random := rand.NewChaCha8([32]byte{1, byte(round), byte(round >> 8)})
			random.Read(image[at:])
		}
		before := content(t, right, image)
		s := &memory{b: bytes.Clone(image)}
		var l log
		m, err := New(s, l.options(wrong, len(s.b)))
		if err != nil {
			continue // the image cannot be of that job
		}
		var misfit *MisfitError
		if err := m.AllowRepair(false); err == nil {
			begun++
		} else if !errors.As(err, &misfit) {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		p := make([]byte, 96<<10)
		for at := int64(0); at < m.Size(); at += int64(len(p)) {
			if n, err := m.ReadAt(p, at); isBad(err) && len(p)-n > 8 { // n bytes before a bad block
				if _, err := m.WriteAt(p[n:n+8], at+int64(n)); err == nil && m.Counts().Repaired == 0 {
					t.Fatalf("seed %d round %d: a part of a bad block was written", seed, round)
				}
			}
		}
		m.Close()
		repaired += m.Counts().Repaired
		if after := content(t, right, s.b); !bytes.Equal(before, after) {
			n := 0
			for i := range before {
				if before[i] != after[i] {
					n++
				}
			}
			t.Fatalf("seed %d round %d: %d of %d bytes of data have changed; right %v, served as %v; %+v", seed, round, n, len(before), describe(right), describe(wrong), m.Counts())
		}
	}
	t.Logf("seed %d: %d images were served for repair, and %d blocks repaired", seed, begun, repaired)
}

// content returns the data of an image, with metadata beside fields.
func content(t *testing.T, job mkeyio.StreamJob, image []byte) []byte {
	t.Helper()
	if job.Crypto != nil && !job.Crypto.OnMemory(job.Signature) {
		image = made(t, mkeyio.StreamJob{Direction: mkeyio.RX, Crypto: job.Crypto}, image)
	}
	if job.Signature == nil {
		return image
	}
	f := *job.Signature.Wire
	alone := f
	alone.Metadata = 0
	width := f.FieldSize()
	if f.Metadata > 0 {
		width = alone.FieldSize()
	}
	var data []byte
	for len(image) >= f.Stride() {
		metadata := image[f.Block():f.Stride()]
		data = append(data, image[:f.Block()]...)
		if f.FieldFirst {
			data = append(data, metadata[width:]...)
		} else {
			data = append(data, metadata[:len(metadata)-width]...)
		}
		image = image[f.Stride():]
	}
	return append(data, image...)
}

func describe(job mkeyio.StreamJob) any {
	if job.Signature == nil {
		return "plain"
	}
	if job.Crypto != nil {
		return []any{job.Signature.Wire, job.Crypto.Order, job.Crypto.DataUnitSize}
	}
	return job.Signature.Wire
}

// TestWeakEvidence: the checksum of zeros and ones is zero, so that CRCs of zeros in blocks of 64 bytes look
// like good blocks of 4096. They must not count.
func TestWeakEvidence(t *testing.T) {
	right, wrong := mkeyio.Protect(format(t, "crc32c:64,seed=0")), mkeyio.Protect(format(t, "t10dif:4096,guard=csum,no-ref-check"))
	s := &memory{b: made(t, right, make([]byte, 1<<20))}
	m, _ := open(t, s, wrong)
	var misfit *MisfitError
	if err := m.AllowRepair(false); !errors.As(err, &misfit) || misfit.Good > 0 {
		t.Errorf("%v", err)
	}
}

// TestRepair damages some blocks of images with the right parameters. All are repaired, but not a long
// run of bad blocks unless that is forced.
func TestRepair(t *testing.T) {
	d := newDEK(t, 1)
	f := format(t, "t10dif:512,app=7")
	signature := &mkey.Signature{Wire: &f}
	for name, job := range map[string]mkeyio.StreamJob{
		"t10dif":           mkeyio.Protect(f),
		"nvme64:4096":      mkeyio.Protect(format(t, "nvme64:4096,meta=64")),
		"encrypted fields": {Signature: signature, Crypto: &mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: 520, DEK: d}},
		"wide data units":  {Signature: signature, Crypto: &mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: 4096, DEK: d}},
		"ciphertext":       {Signature: signature, Crypto: &mkey.Crypto{EncryptOnTX: true, DataUnitSize: 512, DEK: d}},
	} {
		block, stride := job.Signature.Wire.Block(), job.Signature.Wire.Stride()
		const blocks = 400
		data := make([]byte, blocks*block)
		rand.NewChaCha8([32]byte{9}).Read(data)
		s := &memory{b: made(t, job, data)}
		damage := func(i int) { s.b[i*stride+block+1] ^= 0x20 } // in the field
		for i := 3; i < 100; i += 13 {
			damage(i)
		}
		for i := 150; i < 157; i++ {
			damage(i)
		}
		for i := 250; i < 300; i++ { // a run that may be of another format
			damage(i)
		}
		m, l := open(t, s, job)
		if err := m.AllowRepair(false); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p := make([]byte, 240*block)
		if n, err := m.ReadAt(p, 0); n != len(p) || err != nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if !bytes.Equal(p[:3*block], data[:3*block]) {
			t.Errorf("%s: other data", name)
		}
		if _, err := m.ReadAt(p, int64(200*block)); !isBad(err) || len(l.kept) != 1 || l.kept[0] != 250 {
			t.Errorf("%s: a long run of bad blocks: %v, kept %d", name, err, l.kept)
		}
		if _, err := m.WriteAt(make([]byte, 8), int64(260*block)); !isBad(err) {
			t.Errorf("%s: a write of a part: %v", name, err)
		}
		good := m.Counts().Repaired
		fatal.If(t, m.AllowRepair(true))
		if n, err := m.ReadAt(p, int64(160*block)); n != len(p) || err != nil {
			t.Errorf("%s: forced: %d bytes, %v", name, n, err)
		}
		if all := m.Counts().Repaired; all-good != 50 && name != "wide data units" || good < 15 {
			t.Errorf("%s: %d blocks repaired, and %d when forced", name, good, all-good)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
