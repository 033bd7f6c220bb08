/** Where the focus goes when what had it is gone: to where messages are written, on machines with a keyboard. */

export function focusMessage(): void {
  if (matchMedia("(pointer: fine)").matches) document.querySelector<HTMLElement>(".composer textarea")?.focus();
}
