/* vectors SIZE KEYSIZE prints a test file for dpdk-test-crypto-perf. OpenSSL computes the ciphertext. */
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

static void put(const char *name, const unsigned char *b, int n)
{
	printf("%s =\n", name);
	for (int i = 0; i < n; i++)
		printf("0x%02x%s", b[i], i + 1 == n ? "\n" : i % 16 == 15 ? ",\n" : ", ");
}

int main(int argc, char **argv)
{
	int size = atoi(argv[1]), keysize = atoi(argv[2]), n = 0;
	unsigned char key[64], iv[16], *plain = malloc(size), *cipher = malloc(size + 16);
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	if (RAND_bytes(key, keysize) != 1 || RAND_bytes(iv, sizeof iv) != 1 || RAND_bytes(plain, size) != 1)
		return 1;
	if (EVP_EncryptInit_ex(c, keysize == 32 ? EVP_aes_128_xts() : EVP_aes_256_xts(), NULL, key, iv) != 1 ||
	    EVP_EncryptUpdate(c, cipher, &n, plain, size) != 1 || n != size)
		return 1;
	put("plaintext", plain, size);
	put("ciphertext", cipher, size);
	put("cipher_key", key, keysize);
	put("cipher_iv", iv, sizeof iv);
	return 0;
}
