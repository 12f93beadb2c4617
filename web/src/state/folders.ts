// All files of a dropped folder, named by path. Loaded with the first folder.

import { problem } from "./app";

export async function walkFolder(entry: FileSystemEntry, path: string): Promise<File[]> {
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
    if (!entries.length) {
      if (!path && !files.length) problem.value = { message: `${name} contains no files.`, hint: "" };
      return files;
    }
    for (const inner of entries) files.push(...(await walkFolder(inner, name)));
  }
}
