// Dropped files, and folders with all their files, named by path.

export function holdsFiles(event: DragEvent): boolean {
  // An image dragged inside the page has no files.
  return event.dataTransfer?.types.includes("Files") ?? false;
}

export async function filesOf(event: DragEvent): Promise<File[]> {
  const items = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file");
  const given = items.map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const found = await Promise.all(given.map(({ entry, file }) => (entry?.isDirectory ? walk(entry, "") : Promise.resolve(file ? [file] : []))));
  return found.flat();
}

async function walk(entry: FileSystemEntry, path: string): Promise<File[]> {
  const name = path ? `${path}/${entry.name}` : entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    return [Object.assign(file, { loomPath: name })];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: File[] = [];
  for (;;) {
    // A reader gives at most a hundred entries at a time, and nothing at the end.
    const entries = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return files;
    for (const inner of entries) files.push(...(await walk(inner, name)));
  }
}
