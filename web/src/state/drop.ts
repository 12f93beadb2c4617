// Dropped files, and folders with all their files, named by path.

export function holdsFiles(event: DragEvent): boolean {
  // An image dragged inside the page has no files.
  return event.dataTransfer?.types.includes("Files") ?? false;
}

export async function filesOf(event: DragEvent): Promise<File[]> {
  const items = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file");
  const given = items.map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const found = await Promise.all(given.map(({ entry, file }) => (entry?.isDirectory ? import("../screens/deferred").then(({ walkFolder }) => walkFolder(entry, "")) : Promise.resolve(file ? [file] : []))));
  return found.flat();
}
