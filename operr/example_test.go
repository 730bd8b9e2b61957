package operr_test

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
)

// A refused format: the error has the errno of the C interface, and the reason in words.
func Example() {
	err := sig.Format{Type: sig.T10DIF, BlockSize: 513}.Validate()
	fmt.Println(errors.Is(err, syscall.EINVAL))
	var refused *operr.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Op, "|", refused.Reason)
	}
	// Output:
	// true
	// sig format | block size 513: must be a positive multiple of 8
}
