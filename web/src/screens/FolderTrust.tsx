// Shows the files of a folder that instruct the model or configure Loom, and asks whether to use it.
import { request } from "../api/http";
import type { FolderTrustView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { announce, folderTrust } from "../state/app";
import { formatBytes } from "../state/format";
import { report } from "../state/sessions";

async function decide(found: FolderTrustView, trusted: boolean): Promise<void> {
  try {
    await request("/trust", { method: "PUT", body: { workspace: found.folder, digest: found.digest, trusted } });
    announce(trusted ? "Folder trusted" : "Folder not trusted: its files are ignored");
  } catch (error) {
    report(error);
  }
  folderTrust.value = null;
}

export function FolderTrust({ found }: { found: FolderTrustView }) {
  const later = found.kinds.filter((kind) => kind === "settings" || kind === "MCP servers");
  return (
    <Dialog title="Do you trust this folder?" kind="settings" onClose={() => (folderTrust.value = null)}>
      <div class="settings-body folder-trust">
        <p><code>{found.folder}</code> contains files that instruct the model or configure Loom: {found.kinds.join(", ")}. Trust it only if you know who wrote them.</p>
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
          <button type="button" class="primary" onClick={() => void decide(found, true)}>Trust this folder</button>
          <button type="button" onClick={() => void decide(found, false)}>Do not use its files</button>
        </div>
      </div>
    </Dialog>
  );
}
