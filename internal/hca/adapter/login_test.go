package adapter_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestOneLogin makes two login objects in a context: the manual page allows one. Another context
// has its own.
func TestOneLogin(t *testing.T) {
	kek, credential := pattern(32, 1), pattern(40, 2)
	store := dek.NewStore(dek.Wrapped)
	fatal.If(t, errors.Join(store.AddKEK(0, kek), store.AddCredential(0, credential)))
	wrapped, err := dek.Wrap(kek, credential)
	fatal.If(t, err)
	p := start(t, inproc.NewNetwork(nil), testAddr, options{store: store})
	in := command(prm.CmdCreateObject, prm.ObjectCryptoLogin, 272)
	copy(in[0x50:], wrapped)
	first, _ := p.devx(in, 16)
	if _, err := p.ctx.Exec(0, in, 16); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a second login object: %v, want EEXIST", err)
	}
	open(t, p.dev, options{}).devx(in, 16)
	fatal.If(t, first.Close())
	p.devx(in, 16)
}
