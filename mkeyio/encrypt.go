package mkeyio

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// Encryption is AES-XTS of a stream of any length except 1 to 15 bytes. The
// length of the stream does not change.
//
// The stream is cut into data units. The last unit has the bytes that remain;
// if fewer than 16 remain, they belong to the unit before, which is then
// longer. A unit whose length is not a multiple of 16 ends with ciphertext
// stealing. Each unit equals the result of any implementation of IEEE Std 1619
// for its bytes and its tweak.
type Encryption struct {
	DEK    mkey.DEK
	KeyTag [8]byte   // must equal the DEK's keytag, if the DEK has one
	Unit   int       // bytes of a data unit: a size of a key, or 1024, 2048, 8192 or 16384; default 512
	Tweak  xts.Tweak // tweak of the first data unit; unit i has the tweak Tweak+i*Step

	// Step is the difference between the tweaks of two units; default 1. dm-crypt counts in
	// sectors of 512 bytes unless its option iv_large_sectors is set: for data units of 4096
	// bytes Step is 8.
	Step uint64

	// Progress, if not nil, is called after each chunk, as that of a StreamJob.
	Progress func(done int64)
}

// EncryptionUnits returns the sizes that a data unit of an [Encryption] may have, in bytes:
// those of a key, and other sectors of disks.
func EncryptionUnits() []int {
	units := append(sig.KeyBlockSizes(), 1024, 2048, 8192, 16384)
	slices.Sort(units)
	return units
}

// tweak returns the tweak of data unit i: Tweak + i*Step, in 128 bits.
func (e *Encryption) tweak(i uint64) xts.Tweak {
	hi, lo := bits.Mul64(i, e.Step)
	t := e.Tweak.Add(lo)
	t.Hi += hi
	return t
}

// Encrypt encrypts src into dst, on all cores. It is the short way for a [StreamJob]
// with crypto attributes only. Unlike keys and adapters, it accepts a last unit
// whose length is not a multiple of 16.
//
// It returns EMSGSIZE for a stream of 1 to 15 bytes, EINVAL for a Unit that
// [EncryptionUnits] does not have, and otherwise the errors of [Run]. dst must not be [CheckOnly].
func (e Encryption) Encrypt(ctx context.Context, dst Output, src Input) (JobReport, error) {
	return e.run(ctx, dst, src, true)
}

// Decrypt is the inverse of [Encryption.Encrypt], with the same rules.
func (e Encryption) Decrypt(ctx context.Context, dst Output, src Input) (JobReport, error) {
	return e.run(ctx, dst, src, false)
}

// job sets the defaults of e, and returns the job that encrypts or decrypts whole units.
func (e *Encryption) job(encrypt bool) (StreamJob, error) {
	const op = "mkeyio encrypt"
	if e.Unit == 0 {
		e.Unit = 512
	}
	if e.Step == 0 {
		e.Step = 1
	}
	switch {
	case e.DEK == nil:
		return StreamJob{}, failure.New(op, syscall.EINVAL, "no DEK")
	case !slices.Contains(EncryptionUnits(), e.Unit):
		return StreamJob{}, failure.New(op, syscall.EINVAL, "data unit size %d: must be one of %v", e.Unit, EncryptionUnits())
	}
	return StreamJob{Crypto: &mkey.Crypto{EncryptOnTX: encrypt, DataUnitSize: e.Unit, InitialTweak: e.Tweak, DEK: e.DEK, KeyTag: e.KeyTag}, Progress: e.Progress}, nil
}

// View returns a view of the plaintext of a store of size bytes, as [Encryption.Encrypt] writes it: of any length but 1
// to 15 bytes. The first write to an empty store is of all its bytes. Progress is not used. The errors are those of Encrypt.
func (e Encryption) View(f Store, size int64) (*View, error) {
	j, err := e.job(true)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(size); err != nil {
		return nil, err
	}
	j.units = &e
	return NewView(j, f, size)
}

func (e Encryption) run(ctx context.Context, dst Output, src Input, encrypt bool) (JobReport, error) {
	start := time.Now()
	job, err := e.job(encrypt)
	if err != nil { // before the end of the stream, which may be a unit, is read
		return JobReport{}, err
	}
	if dst.checkOnly {
		return JobReport{}, failure.New("mkeyio encrypt", syscall.EINVAL, "nothing to check: the input has no signature")
	}
	if err := src.check(); err != nil {
		return JobReport{}, err
	}
	if e.Step != 1 || !slices.Contains(sig.KeyBlockSizes(), e.Unit) {
		job.units = &e
	}
	// The key processes whole units. The end of the stream, which may be a
	// longer unit, is kept for finish.
	var end *endHolder
	var tail []byte
	whole := src
	if size, known := src.Size(); known {
		whole.size = wholeUnits(size, e.Unit)
		tail = make([]byte, size-whole.size)
		if err := src.readAt(tail, whole.size); err != nil {
			return JobReport{}, err
		}
		if err := checkEnd(size); err != nil {
			return JobReport{}, err
		}
	} else {
		end = newEndHolder(src.seq, e.Unit)
		whole.seq = end
	}
	report, err := Run(ctx, job, dst, whole)
	if err == nil && end != nil { // otherwise a Read may still be in progress
		tail = end.tail()
	}
	if err == nil && len(tail) > 0 {
		err = e.finish(&report, dst, tail, encrypt)
	}
	report.Elapsed = time.Since(start)
	return report, err
}

// wholeUnits returns how many of a stream's size bytes a key processes: the
// whole data units before the end that finish processes.
func wholeUnits(size int64, unit int) int64 {
	rest := size % int64(unit)
	if rest > 0 && rest < xts.BlockSize {
		rest += int64(unit)
	}
	return max(size-rest, 0)
}

// checkEnd refuses a stream, or its end, of n bytes that are too few for a data unit.
func checkEnd(n int64) error {
	if n > 0 && n < xts.BlockSize {
		return failure.New("mkeyio encrypt", syscall.EMSGSIZE, "a stream of %d bytes: AES-XTS needs 16, or none", n)
	}
	return nil
}

// finish encrypts or decrypts the last unit, which may have any length from 16 on, and
// writes it.
func (e Encryption) finish(r *JobReport, dst Output, tail []byte, encrypt bool) error {
	if err := checkEnd(int64(len(tail))); err != nil {
		return err
	}
	c, err := e.DEK.Acquire(e.KeyTag)
	if err != nil {
		return err
	}
	defer e.DEK.Release()
	tweak := e.tweak(uint64(r.BytesIn) / uint64(e.Unit))
	if encrypt {
		c.EncryptUnit(tail, tail, tweak)
	} else {
		c.DecryptUnit(tail, tail, tweak)
	}
	if dst.seq != nil {
		err = fullio.Write(dst.seq, tail)
	} else {
		err = fullio.WriteAt(dst.at, tail, r.BytesOut)
	}
	if err != nil {
		return fmt.Errorf("write the last data unit: %w", err)
	}
	r.BytesIn += int64(len(tail))
	r.BytesOut += int64(len(tail))
	return nil
}

// unitWorker encrypts data units that no key has: of other sizes, or with a step between
// their tweaks. It holds the DEK, as a key does.
type unitWorker struct {
	checking
	e       *Encryption
	encrypt bool
}

func (w unitWorker) close() { w.e.DEK.Release() }

func (w unitWorker) work(s *slot) ([]mkey.BadBlock, error) {
	c, err := w.e.DEK.Acquire(w.e.KeyTag)
	if err != nil {
		return nil, err
	}
	defer w.e.DEK.Release()
	s.outOff = s.off
	s.out = grow(s.out, int64(len(s.in)))
	crypt := c.DecryptUnit
	if w.encrypt {
		crypt = c.EncryptUnit
	}
	number := uint64(s.off) / uint64(w.e.Unit)
	for in, out := s.in, s.out; len(in) > 0; number++ {
		n := w.e.Unit
		if len(in) < n+xts.BlockSize { // the last unit has all that remains
			n = len(in)
		}
		crypt(out[:n], in[:n], w.e.tweak(number))
		in, out = in[n:], out[n:]
	}
	return nil, nil
}

// endHolder reads the part of a stream that wholeUnits returns, and keeps the
// end.
type endHolder struct {
	r     io.Reader
	unit  int
	buf   []byte
	begin int // start of the bytes in buf that were not returned yet
	fill  int // end of those bytes
	ready int // number of those bytes that Read may return
	ended bool
}

func newEndHolder(r io.Reader, unit int) *endHolder {
	return &endHolder{r: r, unit: unit, buf: make([]byte, 256<<10)}
}

// Read implements io.Reader.
func (h *endHolder) Read(p []byte) (int, error) {
	for h.ready == 0 {
		if h.ended {
			return 0, io.EOF
		}
		h.fill = copy(h.buf, h.buf[h.begin:h.fill])
		h.begin = 0
		n, err := fullio.Read(h.r, h.buf[h.fill:])
		h.fill += n
		switch err {
		case nil:
			// Keep two units: the rest of the stream may be shorter than 16
			// bytes and extend the last whole unit.
			h.ready = (h.fill - 2*h.unit) / h.unit * h.unit
		case io.EOF:
			h.ended = true
			h.ready = int(wholeUnits(int64(h.fill), h.unit))
		default:
			return 0, err
		}
	}
	n := copy(p, h.buf[h.begin:h.begin+h.ready])
	h.begin += n
	h.ready -= n
	return n, nil
}

// tail returns the end of the stream once Read has returned io.EOF.
func (h *endHolder) tail() []byte { return h.buf[h.begin:h.fill] }
