package ref

import "testing"

// Check values of the CRC catalogue (reveng.sourceforge.io), the worked example of RFC
// 1071, 3, and guards computed by hardware.
func TestCheckValues(t *testing.T) {
	digits := []byte("123456789")
	a5 := make([]byte, 512)
	ones := make([]byte, 512)
	for i := range a5 {
		a5[i], ones[i] = 0xA5, 0x01
	}
	for _, test := range []struct {
		name      string
		got, want uint64
	}{
		{"CRC-16/T10-DIF", uint64(T10DIF(0, digits)), 0xD0DB},
		{"CRC-32/BZIP2", uint64(CRC32(0xFFFFFFFF, digits)), 0xFC891918},
		{"CRC-32/ISCSI", uint64(CRC32C(0xFFFFFFFF, digits)), 0xE3069283},
		{"CRC-64/NVME", CRC64(^uint64(0), digits), 0xAE8B14860A799888},
		{"T10-DIF of ConnectX, seed ones", uint64(T10DIF(0xFFFF, a5)), 0xEC7D},
		{"T10-DIF of ConnectX, seed zeros", uint64(T10DIF(0, a5)), 0x9EC6},
		{"CRC32 of ConnectX", uint64(CRC32(0, ones)), 0x15D286F7},
		{"RFC 1071", uint64(CSUM(0, []byte{0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7})), 0xFFFF &^ 0xDDF2},
		{"checksum of zeros", uint64(CSUM(0, make([]byte, 8))), 0xFFFF},
		{"checksum of zeros, seed ones", uint64(CSUM(0xFFFF, make([]byte, 8))), 0},
	} {
		if test.got != test.want {
			t.Errorf("%s: %#x, want %#x", test.name, test.got, test.want)
		}
	}
}
