/* hello.S: the tiny payload of the benches: writes "hello\n" and exits, 2 system
 * calls, no libc, so that what is measured is the sandbox and not the program. */
	.globl _start
	.text
_start:
	mov $1, %eax
	mov $1, %edi
	lea text(%rip), %rsi
	mov $6, %edx
	syscall
	mov $231, %eax
	xor %edi, %edi
	syscall
	.section .rodata
text:	.ascii "hello\n"
	.section .note.GNU-stack,"",@progbits
