package verbs

import (
	"github.com/softmkey/softmkey/dek"
)

// cryptoState is a device's keys and the outcome of its self-tests.
type cryptoState struct {
	store   *dek.Store
	context *dek.Context
	tests   testResults
}

func newCryptoState(store *dek.Store, tests testResults) *cryptoState {
	if store == nil {
		store = dek.NewStore(dek.Plaintext)
	}
	return &cryptoState{store: store, context: store.NewContext(), tests: tests}
}

// CryptoCaps tells what crypto a device can do (struct mlx5dv_crypto_caps).
type CryptoCaps struct {
	ImportMode    dek.ImportMode
	AESXTS        bool  // the engine AES-XTS, with 128 and 256 bit keys
	FailedTests   bool  // AES-XTS failed its known-answer test and cannot be used
	DataUnitSizes []int // of data units, in bytes
}

// CryptoCaps returns what crypto the device can do.
func (d *Device) CryptoCaps() CryptoCaps {
	failed := d.crypto.tests.xts
	return CryptoCaps{
		ImportMode: d.crypto.store.Mode(), AESXTS: !failed, FailedTests: failed,
		DataUnitSizes: d.SignatureCaps().BlockSizes,
	}
}

// KeyStore returns the device's key store, through which a crypto officer
// provisions it.
func (d *Device) KeyStore() *dek.Store { return d.crypto.store }

// Crypto returns the user's side of the key store: logins and DEKs.
func (d *Device) Crypto() *dek.Context { return d.crypto.context }
