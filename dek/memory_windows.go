package dek

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// lockedPages maps n bytes that are not swapped.
func lockedPages(n int) ([]byte, error) {
	p, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_COMMIT|windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, err
	}
	if err := windows.VirtualLock(p, uintptr(n)); err != nil {
		windows.VirtualFree(p, 0, windows.MEM_RELEASE)
		return nil, err
	}
	// The address is not in the Go heap. The conversion through a pointer
	// avoids a warning of vet.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n), nil
}

func unlockPages(m []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
	windows.VirtualUnlock(p, uintptr(len(m)))
	windows.VirtualFree(p, 0, windows.MEM_RELEASE)
}
