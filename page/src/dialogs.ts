/** Dialogs that are open as long as they are drawn. */

export function showDialog(dialog: HTMLDialogElement | null): void {
  if (dialog && !dialog.open) dialog.showModal();
}
