package mkeyio

import (
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// checker finds the bad blocks of a job's input, chunk by chunk, without
// output. It does the whole work of a job with [CheckOnly]. It also checks a
// chunk a second time if a key found several bad blocks there, because the key
// keeps only the first.
type checker struct {
	run    *sig.Transform // nil: the input has no signature
	in     sig.Format
	domain mkey.Domain
	pos0   int64 // position at which the stream begins in its domain

	crypto  *mkey.Crypto // nil: the fields are not encrypted
	scratch []byte

	all bool // find every bad block, not only the first
	bad []mkey.BadBlock
}

func newChecker(j *StreamJob, s *shape) (*checker, error) {
	c := &checker{domain: mkey.MemoryDomain, pos0: s.in0, all: j.KeepGoing}
	if s.receives {
		c.domain = mkey.WireDomain
	}
	if !s.in.Signed() {
		return c, nil
	}
	if s.receives {
		c.in = *j.Signature.Wire
	} else {
		c.in = *j.Signature.Memory
	}
	if s.unitInInput {
		c.crypto = j.Crypto
	}
	var err error
	mask := j.Signature.Checked(c.domain)
	c.run, err = sig.NewTransform(sig.TransformConfig{In: c.in, CheckMask: &mask})
	return c, err
}

// checks reports whether the checker compares anything.
func (c *checker) checks() bool { return c.run != nil && c.run.Checks() }

// check returns the bad blocks of a chunk at off of the input. They are valid until the
// next call.
func (c *checker) check(chunk []byte, off int64) ([]mkey.BadBlock, error) {
	c.bad = c.bad[:0]
	n := 0
	if c.run != nil {
		n = len(chunk) / c.in.Stride()
	}
	if n == 0 {
		return nil, nil
	}
	pos := uint64(c.pos0 + off)
	if c.crypto != nil {
		if err := c.decrypt(chunk, pos); err != nil {
			return nil, err
		}
		chunk = c.scratch
	}
	blocks := sig.Interleaved(c.in, chunk)
	c.run.Run(blocks, blocks, n, pos/uint64(c.in.Stride()), c.add)
	return c.bad, nil
}

// escaped returns how many blocks in the first n bytes of a chunk at off of the input an escape
// exempts from the check.
func (c *checker) escaped(chunk []byte, off, n int64) (int64, error) {
	if c.run == nil || !hasEscape(c.in) || len(chunk) < c.in.Stride() {
		return 0, nil
	}
	if c.crypto != nil {
		if err := c.decrypt(chunk, uint64(c.pos0+off)); err != nil {
			return 0, err
		}
		chunk = c.scratch
	}
	return int64(c.in.Escaped(sig.Interleaved(c.in, chunk), int(n)/c.in.Stride())), nil
}

// hasEscape reports whether a format's tags can exempt a block from the check.
func hasEscape(f sig.Format) bool {
	return f.Escapes(sig.Field{AppTag: 0xFFFF, RefTag: f.MaxRefTag()})
}

// decrypt decrypts a chunk to scratch. In every row that applies crypto before
// it checks fields (C, E, H and I), the crypto is a decryption.
func (c *checker) decrypt(chunk []byte, pos uint64) error {
	c.scratch = grow(c.scratch, int64(len(chunk)))
	return crypt(c.crypto, (*xts.Cipher).Decrypt, c.scratch, chunk, pos)
}

// crypt encrypts or decrypts whole data units at a position of the encrypted stream.
func crypt(c *mkey.Crypto, f func(c *xts.Cipher, dst, src []byte, unit int, tweak xts.Tweak), dst, src []byte, pos uint64) error {
	cipher, err := c.DEK.Acquire(c.KeyTag)
	if err != nil {
		return err
	}
	defer c.DEK.Release()
	f(cipher, dst, src, c.DataUnitSize, c.InitialTweak.Add(pos/uint64(c.DataUnitSize)))
	return nil
}

// add keeps a bad block.
func (c *checker) add(e sig.Error) bool {
	c.bad = append(c.bad, mkey.BadBlock{Sig: e, Domain: c.domain})
	return c.all
}
