package mkeyio

import (
	"bytes"
	"cmp"
	"io"

	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// signAgain writes the field of a block to the store. stored has the whole granules at off of the
// store that the block lies in; signAgain updates it.
func (v *View) signAgain(stored []byte, off int64, block uint64) error {
	format := *v.fields()
	var kept sig.Mask
	if format.Flags&sig.IgnoreGuard != 0 {
		kept |= sig.MaskGuard
	}
	if format.Flags&sig.IgnoreApp != 0 {
		kept |= sig.MaskApp
	}
	// A mask has one part for the storage tag and the reference tag of an NVMe type.
	if storage, _ := format.TagBits(); format.Flags&sig.IgnoreRef != 0 && (storage == 0 || format.Flags&sig.IgnoreStorage != 0) {
		kept |= sig.MaskRef
	}
	sign, err := sig.NewTransform(sig.TransformConfig{In: format, Out: format, CheckMask: new(sig.Mask), CopyMask: &kept})
	if err != nil {
		return err
	}
	fresh := bytes.Clone(stored)
	if v.read.unitInInput {
		if err := crypt(v.job.Crypto, (*xts.Cipher).Decrypt, fresh, fresh, uint64(off)); err != nil {
			return err
		}
	}
	at := int64(block)*v.read.in.Stride() - off
	field := sig.Interleaved(format, fresh[at:][:v.read.in.Stride()])
	sign.Run(field, field, 1, block, nil)
	if v.read.unitInInput {
		if err := crypt(v.job.Crypto, (*xts.Cipher).Encrypt, fresh, fresh, uint64(off)); err != nil {
			return err
		}
	}
	first, end := 0, len(fresh) // the bytes that have changed
	for first < end && fresh[first] == stored[first] {
		first++
	}
	for end > first && fresh[end-1] == stored[end-1] {
		end--
	}
	copy(stored, fresh)
	if n, err := v.f.WriteAt(fresh[first:end], off+int64(first)); err != nil || n < end-first {
		return cmp.Or(err, io.ErrShortWrite)
	}
	return nil
}

// fields returns the format of the store.
func (v *View) fields() *sig.Format {
	if v.job.Direction == TX {
		return v.job.Signature.Wire
	}
	return v.job.Signature.Memory
}
