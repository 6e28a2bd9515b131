/** Sends a task with its inputs, and has it run. */

import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { newKey } from "../asking";
import { type Attachments, prepared } from "./bundle";
import type { Task } from "./task-text";

export interface Order {
  task: Task;
  attachments: Attachments;
  /** The file it was taken from, if nothing of it was changed: the server has its inputs. */
  file: string | null;
}

/** What tells files from others of the same names. */
function looks(files: Attachments[string]["files"]): unknown[] {
  return files.map(({ path, file }) => [path, file.size, file.lastModified]);
}

/** Starts runs, so that pressing the button again after an answer was lost does not start them twice. */
export class Starter {
  private key = newKey();
  private last = "";
  private bundle: string | null = null;

  async start({ task, attachments, file }: Order): Promise<string> {
    const said = JSON.stringify([
      task,
      file,
      Object.entries(attachments).map(([name, { files }]) => [name, looks(files)]),
    ]);
    if (said !== this.last) {
      this.key = newKey();
      this.bundle = null;
      this.last = said;
    }
    const body: Schema<"RunBody"> = file ? { file } : await this.body(task, attachments);
    const headers = { "Idempotency-Key": this.key };
    const { runs } = await api.post<Schema<"RunsSaid">>("/v1/runs", body, { headers });
    this.last = "";
    const [first] = runs;
    return runs.length > 1 && first?.group ? `/runs/compare/${first.group}` : `/runs/${first?.id ?? ""}`;
  }

  private async body(task: Task, attachments: Attachments): Promise<Schema<"RunBody">> {
    const { task: sent, bundle } = prepared(task, attachments);
    if (bundle && !this.bundle) this.bundle = (await api.post<Schema<"BundleSaid">>("/v1/inputs", bundle)).id;
    return bundle ? { task: sent, inputs: this.bundle } : { task: sent };
  }
}
