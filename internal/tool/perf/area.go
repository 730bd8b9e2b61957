package perf

import (
	"context"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// testKey is the key of all measurements with crypto. It protects nothing.
func testKey() []byte {
	k := make([]byte, dek.Size256.Bytes())
	for i := range k {
		k[i] = byte(i*7 + 1)
	}
	return k
}

// pattern returns the data of all messages of n bytes.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(0x9E3779B9)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// content is a message in each of the three domains.
type content struct{ memory, wire, peer []byte }

// newContent makes a message with good signatures for both keys.
func newContent(p *keyplan.Plan, n int, d *dek.DEK) (content, error) {
	var c content
	wire := pattern(n)
	key := &p.Sender
	if key.Plain() {
		key = &p.Receiver // the receiver's key defines what is on the wire
	}
	if f := p.Wire.Format; f != nil {
		signed := make([]byte, f.StreamLen(int64(n)))
		if _, err := f.Protect(signed, wire); err != nil {
			return c, err
		}
		wire = signed
	}
	if p.Wire.Encrypted == keyplan.StreamEncrypted && key.Crypto != nil && key.Signature != nil {
		x, err := xts.New(testKey())
		if err != nil {
			return c, err
		}
		x.Encrypt(wire, wire, key.Crypto.DataUnitSize, key.Crypto.InitialTweak)
	}
	c.wire = wire
	var err error
	if c.memory, err = received(&p.Sender, wire, int(p.Memory.Len(int64(n))), d); err != nil {
		return c, err
	}
	// The sender's key may copy fields from memory, which differ from those generated above.
	if c.wire, err = sent(&p.Sender, c.memory, len(wire), d); err != nil {
		return c, err
	}
	c.peer, err = received(&p.Receiver, c.wire, int(p.Peer.Len(int64(n))), d)
	return c, err
}

// keyOver returns a key with the attributes of k over memory.
func keyOver(k *keyplan.Key, memory []byte, d *dek.DEK) (*mkey.Key, error) {
	own := withDEK(k, d)
	return mkey.New(mkey.Config{
		Access:    rdma.LocalWrite,
		Layout:    mkey.List{{Memory: mkey.Bytes(memory), Length: uint64(len(memory))}},
		Signature: own.Signature,
		Crypto:    own.Crypto,
	})
}

// withDEK returns k with a data encryption key, if it has crypto.
func withDEK(k *keyplan.Key, d *dek.DEK) keyplan.Key {
	own := *k
	if k.Crypto != nil {
		crypto := *k.Crypto
		crypto.DEK = d
		own.Crypto = &crypto
	}
	return own
}

// sent returns the wire bytes of a key's memory.
func sent(k *keyplan.Key, memory []byte, n int, d *dek.DEK) ([]byte, error) {
	if k.Plain() {
		return memory, nil
	}
	key, err := keyOver(k, memory, d)
	if err != nil {
		return nil, err
	}
	defer key.Close()
	tx, err := key.TX(0, uint64(n))
	if err != nil {
		return nil, err
	}
	defer tx.Close()
	wire := make([]byte, n)
	_, err = tx.ReadAt(wire, 0)
	return wire, err
}

// received returns a key's memory of n bytes after it has received the wire.
func received(k *keyplan.Key, wire []byte, n int, d *dek.DEK) ([]byte, error) {
	if k.Plain() {
		return wire, nil
	}
	memory := make([]byte, n)
	key, err := keyOver(k, memory, d)
	if err != nil {
		return nil, err
	}
	defer key.Close()
	rx, err := key.RX(0, uint64(len(wire)))
	if err != nil {
		return nil, err
	}
	defer rx.Close()
	if _, err := rx.Write(wire); err != nil {
		return nil, err
	}
	return memory, rx.Finish()
}

// area is memory on one side of a connection, with a key over it if the plan has
// one there.
type area struct {
	mr  *verbs.MR
	key *verbs.MKey
	sge verbs.SGE // the whole message
}

// newArea makes an area with n bytes of memory, whose messages have wire bytes in the wire
// domain.
func newArea(pd *verbs.PD, k *keyplan.Key, n, wire int, access verbs.Access) (a area, err error) {
	if a.mr, err = pd.Register(make([]byte, n), access|verbs.LocalWrite); err != nil {
		return a, err
	}
	a.sge = a.mr.SGE(0, n)
	if k.Plain() {
		return a, nil
	}
	if a.key, err = k.Make(pd); err == nil {
		a.sge = a.key.SGE(0, wire)
	}
	return a, err
}

// configure configures the key, through a connected queue pair.
func (a *area) configure(ctx context.Context, qp *verbs.QP, cq *verbs.CQ, k *keyplan.Key, access verbs.Access, d *dek.DEK) error {
	if a.key == nil {
		return nil
	}
	c := qp.Start().Signaled()
	own := withDEK(k, d)
	own.Configure(c, a.key, access, a.mr.SGE(0, a.mr.Len()))
	if err := c.Complete(); err != nil {
		return err
	}
	var wc [1]verbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return err
	}
	if wc[0].Status != verbs.StatusSuccess {
		return fmt.Errorf("configuration of a key: %v", wc[0].Status)
	}
	return nil
}

// remote returns the key and the address by which the peer reaches the area.
func (a *area) remote() (rkey uint32, addr uint64) {
	if a.key != nil {
		return a.key.RKey(), 0
	}
	return a.mr.RKey(), a.mr.Addr()
}

// check returns the bad block that the key found, if any.
func (a *area) check() error {
	if a.key == nil {
		return nil
	}
	bad, err := a.key.Check()
	var refused *operr.Error
	switch {
	case errors.As(err, &refused):
		return nil // a key without signatures
	case bad != nil:
		return bad
	}
	return err
}

func (a *area) close() error {
	var err error
	if a.key != nil {
		err = a.key.Close()
	}
	if a.mr != nil {
		err = errors.Join(err, a.mr.Close())
	}
	return err
}
