// Shows what a folder brings that instructs the model or configures Loom, and asks whether to use it.
import type { FolderTrustView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { decideFolderTrust, folderTrust } from "../state/folder_trust";
import { formatBytes } from "../state/format";

export function FolderTrust({ found }: { found: FolderTrustView }) {
  const later = found.kinds.filter((kind) => kind === "settings" || kind === "MCP servers");
  return (
    <Dialog title="Do you trust this folder?" kind="settings" onClose={() => (folderTrust.value = null)}>
      <div class="settings-body folder-trust">
        <p><code>{found.folder}</code> brings files that instruct the model or configure Loom: {found.kinds.join(", ")}. Trust it only if you know who wrote them.</p>
        {found.files.map((file) => (
          <details key={file.name}>
            <summary>{file.name} <span class="dim">{formatBytes(file.bytes)}{file.is_foreign && ", of another user"}</span></summary>
            <pre class="plain" tabIndex={0}>{file.text || "(empty)"}</pre>
          </details>
        ))}
        {found.more > 0 && <p class="dim">and {found.more} more</p>}
        {later.length > 0 && <p class="dim">Its {later.join(" and ")} take effect the next time Loom starts in this folder.</p>}
        <p class="dim">Your decision is kept until one of the files changes.</p>
        <div class="buttons">
          <button type="button" class="primary" onClick={() => void decideFolderTrust(found, true)}>Trust this folder</button>
          <button type="button" onClick={() => void decideFolderTrust(found, false)}>Do not use its files</button>
        </div>
      </div>
    </Dialog>
  );
}
