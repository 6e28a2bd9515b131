/** Submits a task with its inputs and starts its runs. */

import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { newIdempotencyKey } from "../api";
import { type Attachments, prepareSubmission } from "./input-bundle";
import type { Task } from "./task-yaml";

export interface RunSubmission {
  task: Task;
  attachments: Attachments;
  /** Task file it was loaded from, if unchanged: the server has its inputs. */
  file: string | null;
}

/** Fingerprint that distinguishes files with the same names. */
function filesFingerprint(files: Attachments[string]["files"]): unknown[] {
  return files.map(({ path, file }) => [path, file.size, file.lastModified]);
}

/** Starts runs idempotently: pressing the button again after a lost response starts nothing twice. */
export class RunStarter {
  private key = newIdempotencyKey();
  private lastFingerprint = "";
  private bundle: string | null = null;

  async start({ task, attachments, file }: RunSubmission): Promise<string> {
    const fingerprint = JSON.stringify([
      task,
      file,
      Object.entries(attachments).map(([name, { files }]) => [name, filesFingerprint(files)]),
    ]);
    if (fingerprint !== this.lastFingerprint) {
      this.key = newIdempotencyKey();
      this.bundle = null;
      this.lastFingerprint = fingerprint;
    }
    const body: Schema<"CreateRunsRequest"> = file ? { file } : await this.body(task, attachments);
    const headers = { "Idempotency-Key": this.key };
    const { runs } = await api.post<Schema<"CreateRunsResponse">>("/v1/runs", body, { headers });
    this.lastFingerprint = "";
    const [first] = runs;
    return runs.length > 1 && first?.group ? `/runs/compare/${first.group}` : `/runs/${first?.id ?? ""}`;
  }

  private async body(task: Task, attachments: Attachments): Promise<Schema<"CreateRunsRequest">> {
    const { task: sentTask, bundle } = prepareSubmission(task, attachments);
    if (bundle && !this.bundle) this.bundle = (await api.post<Schema<"InputBundleResponse">>("/v1/inputs", bundle)).id;
    return bundle ? { task: sentTask, inputs: this.bundle } : { task: sentTask };
  }
}
